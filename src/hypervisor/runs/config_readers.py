"""Readers of the values in config.toml. Each takes the full name of a key and its value, checks the
value, and returns it as the program uses it."""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput
from hypervisor.core.records import NamedTuple
from hypervisor.core.text import closest
from hypervisor.queue.host import MAX_HOST_LEASE, MIN_HOST_LEASE

SIZE_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
SPAN_UNITS = {"ms": 1, "": 1000, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
MAX_SIZE = 1 << 62
MAX_WORKERS = 10_000
MAX_GRACE = 60

# What the documentation calls the values.
DURATION, SIZE, SHARE, TEXT = "duration", "size", "0 to 1", "text"

Reader = Callable[[str, Any], Any]


class Key(NamedTuple):
    """A key of config.toml: how its value is read and checked, and its documentation.

    `default` and `example` are TOML; a key without a default has an example."""

    read: Reader
    type: str
    help: str
    default: str = ""
    example: str = ""


def size(value: str | int, key: str = "") -> int:
    """`512M`, `2G`, `1.5G` or plain bytes, in bytes; a K is 1024 bytes."""
    text = str(value).strip().upper()
    text = text.removesuffix("IB") if text.endswith("IB") else text.removesuffix("B")
    number = text.rstrip("KMGT")
    amount = _scaled(value, number, SIZE_UNITS.get(text[len(number) :]))
    if amount is None:
        raise InvalidInput(
            f"{key and f'{key}: '}invalid size {str(value)[:40]!r} (try 512M, 2G or 1.5G)"
        )
    return amount


def span(value: str | float, key: str = "") -> int:
    """`90s`, `15m`, `2h`, `1d` or plain seconds, in milliseconds."""
    text = str(value).strip().lower()
    number = text.rstrip("mshd")
    amount = _scaled(value, number, SPAN_UNITS.get(text[len(number) :]))
    if amount is None:
        raise InvalidInput(
            f"{key and f'{key}: '}invalid duration {str(value)[:40]!r} (try 90s, 15m, 2h or 1d)"
        )
    return amount


def _scaled(value: object, number: str, unit: int | None) -> int | None:
    if unit is None or isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return None
    try:
        amount = float(number) * unit
    except (ValueError, OverflowError):
        return None
    return round(amount) if 0 <= amount < MAX_SIZE else None  # NaN is neither


def values(table: str, entries: object, keys: Mapping[str, "Key"]) -> dict[str, Any]:
    """The values of a table, each read by the reader of its key."""
    if not isinstance(entries, Mapping):
        raise InvalidInput(f"{table} must be a table, as in [{table}].")
    refuse_unknown(f"{table}.", entries, keys)
    return {key: keys[key].read(f"{table}.{key}", value) for key, value in entries.items()}


def refuse_unknown(prefix: str, entries: Mapping[str, Any], known: Collection[str]) -> None:
    unknown = next((key for key in entries if key not in known), None)
    if unknown is None:
        return
    if similar := closest(unknown, known):
        raise InvalidInput(f"unknown key {prefix}{unknown}; did you mean {prefix}{similar}?")
    raise InvalidInput(f"unknown key {prefix}{unknown}; use one of {', '.join(known)}.")


def a_size(key: str, value: Any) -> int:
    return size(value, key)


def positive_size(key: str, value: Any) -> int:
    return size(value, key) or refuse(key, "more than 0")


def a_span(key: str, value: Any) -> int:
    return span(value, key)


def grace(key: str, value: Any) -> float:
    seconds = span(value, key) / 1000
    return seconds if seconds <= MAX_GRACE else refuse(key, f"at most {MAX_GRACE} s")


def or_off(read: Reader) -> Reader:
    return lambda key, value: 0 if value == "off" else read(key, value)


def number(low: float, high: float, whole: bool = False) -> Reader:
    kind = "a whole number" if whole else "a number"

    def check(key: str, value: Any) -> Any:
        is_number = isinstance(value, int) or (isinstance(value, float) and not whole)
        if not is_number or isinstance(value, bool) or not low <= value <= high:
            refuse(key, f"{kind} between {low:,} and {high:,}")
        return value

    return check


def days_or_off(key: str, value: Any) -> float | None:
    if value == "off":
        return None
    if isinstance(value, str):
        refuse(key, 'a number of days or "off"')
    return float(number(1, 36_500)(key, value))


def workers(key: str, value: Any) -> int | None:
    if value == "auto":
        return None
    if isinstance(value, str):
        refuse(key, 'a whole number or "auto"')
    return int(number(1, MAX_WORKERS, whole=True)(key, value))


def names(key: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        refuse(key, 'a list of names, as in ["gpu"]')
    return validate.names(key, value)


def one_of(*choices: str) -> Reader:
    def check(key: str, value: Any) -> Any:
        return value if value in choices else refuse(key, f"one of {', '.join(choices)}")

    return check


def texts(key: str, value: Any) -> tuple[str, ...]:
    is_list = isinstance(value, list) and all(isinstance(word, str) and word for word in value)
    return tuple(value) if is_list else refuse(key, 'a list of texts, as in [".env"]')


def a_text(key: str, value: Any) -> str:
    return validate.text(key, value, 1_000)


def commands(key: str, value: Any) -> tuple[str, ...]:
    return texts(key, [value] if isinstance(value, str) else value)


def folders(key: str, value: Any) -> tuple[str, ...]:
    return tuple(_inside(key, path) for path in texts(key, value))


def _inside(key: str, path: str) -> str:
    names = [name for name in path.split("/") if name not in ("", ".")]
    is_inside = names and not path.startswith("/") and ".." not in names
    if not is_inside or names[0] in (".git", ".hypervisor"):
        refuse(key, f"folders inside the project, unlike {path[:80]!r}")
    return "/".join(names)


def positive_span(key: str, value: Any) -> int:
    return span(value, key) or refuse(key, "more than 0")


def host_lease(key: str, value: Any) -> int:
    lease = span(value, key)
    is_allowed = MIN_HOST_LEASE <= lease <= MAX_HOST_LEASE
    return lease if is_allowed else refuse(key, "between 2s and 1h")


def hosts(key: str, value: Any) -> tuple[str, ...]:
    hosts = texts(key, value)
    wrong = next((host for host in hosts if "/" in host or host == "*"), None)
    return hosts if wrong is None else refuse(key, f"names of hosts, unlike {wrong[:80]!r}")


def yes_or_no(key: str, value: Any) -> bool:
    return value if isinstance(value, bool) else refuse(key, "true or false")


def url(key: str, value: Any) -> str:
    is_url = isinstance(value, str) and value.startswith(("http://", "https://"))
    if not is_url or "@" in value.partition("://")[2].partition("/")[0]:
        refuse(key, "an http:// or https:// URL without a password")
    return str(value)


def object_store(key: str, value: Any) -> str:
    known = ("s3://", "gs://", "az://", "file:///")
    if not isinstance(value, str) or not value.startswith(known) or "@" in value:
        refuse(key, "a URL that starts with s3://, gs://, az:// or file:///, without a password")
    return str(value).rstrip("/")


def exchange(key: str, value: Any) -> str:
    known = ("s3://", "gs://", "az://", "file:///", "ssh://", "https://", "http://", "/")
    is_known = isinstance(value, str) and value.startswith(known)
    if not is_known or re.match(r"\w+://[^/]*:[^/]*@", value):
        refuse(key, "an absolute path, or a URL (ssh, https, s3, gs, az, file) without a password")
    return str(value).rstrip("/")


def refuse(key: str, expected: str) -> Any:
    raise InvalidInput(f"{key} must be {expected}.")
