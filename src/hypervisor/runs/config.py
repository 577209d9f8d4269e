"""Reads and checks config.toml, except for the tables about agents (agents/config.py)."""

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput
from hypervisor.core.text import closest
from hypervisor.resources.limits import Limits
from hypervisor.resources.zones import DEFAULTS, Thresholds
from hypervisor.runs.spec import STRATEGIES, Strategy
from hypervisor.runs.telemetry_settings import TelemetrySettings

SIZE_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
SPAN_UNITS = {"ms": 1, "": 1000, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
MAX_SIZE = 1 << 62
MAX_WORKERS = 10_000
MAX_GRACE = 60


class WorkspaceSettings(NamedTuple):
    """What a clone of a repository needs to be usable, and how long it is kept. `timeout` is in
    milliseconds."""

    include: tuple[str, ...] = ()
    caches: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    teardown: tuple[str, ...] = ()
    timeout: int = 600_000
    snapshots: int = 50
    keep_days: float = 7


class Settings(NamedTuple):
    """`workers` None is one for each core; `grace` is in seconds; sizes are in bytes."""

    relaxed: bool = False
    workers: int | None = None
    nice: int = 10
    capabilities: tuple[str, ...] = ()
    grace: float = 3.0
    strategy: Strategy = "auto"
    thresholds: Thresholds = DEFAULTS
    memory_limit: int | None = None
    limits: Limits = Limits(output=1 << 30)
    limits_by_type: Mapping[str, Limits] = MappingProxyType({})
    dry_run: bool = False
    keep_days: float = 30
    keep_size: int = 10 << 30
    keep_each: int = 8 << 20
    workspace: WorkspaceSettings = WorkspaceSettings()
    merge_verify: tuple[str, ...] = ()
    merge_env: tuple[str, ...] = ()
    agents_may_approve: bool = False
    telemetry: TelemetrySettings = TelemetrySettings()


def settings_from(config: Mapping[str, Any]) -> Settings:
    """The settings in config.toml. InvalidInput names the invalid key."""
    _refuse_unknown("", config, (*TABLES, *AGENT_TABLES))
    store, run, governor, limits, outputs, workspace, merge, telemetry = (
        values(name, config.get(name, {}), keys) for name, keys in TABLES.items()
    )
    defaults = Settings()
    return Settings(
        relaxed=store.get("durability") == "relaxed",
        strategy=governor.pop("strategy", defaults.strategy),
        memory_limit=governor.pop("memory_limit", None),
        thresholds=_thresholds(governor),
        limits_by_type=limits.pop("types", {}),
        dry_run=limits.pop("dry_run", False),
        limits=defaults.limits._replace(**limits),
        merge_verify=merge.get("verify", ()),
        merge_env=merge.get("env", ()),
        agents_may_approve=merge.get("agents_may_approve", False),
        **run,
        **outputs,
        workspace=WorkspaceSettings(**workspace),
        telemetry=TelemetrySettings(**telemetry),
    )


def limits_from(data: object, table: str = "limits") -> Limits:
    """Limits as people write them: durations and sizes, "off" for none."""
    return Limits(**values(table, data, LIMITS))


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


def _thresholds(governor: dict[str, Any]) -> Thresholds:
    if "hold" in governor:
        governor["hold_ms"] = governor.pop("hold")
    thresholds = Thresholds(**governor)
    rising = (
        ("cpu_warning", "cpu_danger"),
        ("ram_warning", "ram_danger"),
        ("ram_danger", "ram_emergency"),
        ("ceiling", "ram_emergency"),
    )
    for low, high in rising:
        if getattr(thresholds, low) > getattr(thresholds, high):
            raise InvalidInput(f"governor.{low} must not be above governor.{high}.")
    least = min(thresholds.cpu_warning, thresholds.ram_warning, thresholds.stall / 100)
    if thresholds.margin >= least:  # such a zone could never be left again
        raise InvalidInput(f"governor.margin must be below every threshold, so below {least:g}.")
    return thresholds


def values(table: str, entries: object, keys: Mapping[str, "Key"]) -> dict[str, Any]:
    """The values of a table, each read by the reader of its key."""
    if not isinstance(entries, Mapping):
        raise InvalidInput(f"{table} must be a table, as in [{table}].")
    _refuse_unknown(f"{table}.", entries, keys)
    return {key: keys[key].read(f"{table}.{key}", value) for key, value in entries.items()}


def _refuse_unknown(prefix: str, entries: Mapping[str, Any], known: Collection[str]) -> None:
    unknown = next((key for key in entries if key not in known), None)
    if unknown is None:
        return
    if similar := closest(unknown, known):
        raise InvalidInput(f"unknown key {prefix}{unknown}; did you mean {prefix}{similar}?")
    raise InvalidInput(f"unknown key {prefix}{unknown}; use one of {', '.join(known)}.")


# Readers check the value of a key. Each takes the key's full name and the value.

Reader = Callable[[str, Any], Any]


class Key(NamedTuple):
    """A key of config.toml: how its value is read and checked, and its documentation.

    `default` and `example` are TOML; a key without a default has an example."""

    read: Reader
    type: str
    help: str
    default: str = ""
    example: str = ""


def _size(key: str, value: Any) -> int:
    return size(value, key)


def _positive_size(key: str, value: Any) -> int:
    return size(value, key) or _refuse(key, "more than 0")


def _span(key: str, value: Any) -> int:
    return span(value, key)


def _grace(key: str, value: Any) -> float:
    seconds = span(value, key) / 1000
    return seconds if seconds <= MAX_GRACE else _refuse(key, f"at most {MAX_GRACE} s")


def _limit(read: Reader) -> Reader:
    return lambda key, value: 0 if value == "off" else read(key, value)


def number(low: float, high: float, whole: bool = False) -> Reader:
    kind = "a whole number" if whole else "a number"

    def check(key: str, value: Any) -> Any:
        is_number = isinstance(value, int) or (isinstance(value, float) and not whole)
        if not is_number or isinstance(value, bool) or not low <= value <= high:
            _refuse(key, f"{kind} between {low:,} and {high:,}")
        return value

    return check


def _workers(key: str, value: Any) -> int | None:
    if value == "auto":
        return None
    if isinstance(value, str):
        _refuse(key, 'a whole number or "auto"')
    return int(number(1, MAX_WORKERS, whole=True)(key, value))


def _names(key: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        _refuse(key, 'a list of names, as in ["gpu"]')
    return validate.names(key, value)


def one_of(*choices: str) -> Reader:
    def check(key: str, value: Any) -> Any:
        return value if value in choices else _refuse(key, f"one of {', '.join(choices)}")

    return check


def _texts(key: str, value: Any) -> tuple[str, ...]:
    is_list = isinstance(value, list) and all(isinstance(word, str) and word for word in value)
    return tuple(value) if is_list else _refuse(key, 'a list of texts, as in [".env"]')


def _commands(key: str, value: Any) -> tuple[str, ...]:
    return _texts(key, [value] if isinstance(value, str) else value)


def _folders(key: str, value: Any) -> tuple[str, ...]:
    return tuple(_inside(key, path) for path in _texts(key, value))


def _inside(key: str, path: str) -> str:
    names = [name for name in path.split("/") if name not in ("", ".")]
    is_inside = names and not path.startswith("/") and ".." not in names
    if not is_inside or names[0] in (".git", ".hypervisor"):
        _refuse(key, f"folders inside the project, unlike {path[:80]!r}")
    return "/".join(names)


def _positive_span(key: str, value: Any) -> int:
    return span(value, key) or _refuse(key, "more than 0")


def yes_or_no(key: str, value: Any) -> bool:
    return value if isinstance(value, bool) else _refuse(key, "true or false")


def _url(key: str, value: Any) -> str:
    is_url = isinstance(value, str) and value.startswith(("http://", "https://"))
    if not is_url or "@" in value.partition("://")[2].partition("/")[0]:
        _refuse(key, "an http:// or https:// URL without a password")
    return str(value)


def _types(key: str, value: Any) -> Mapping[str, Limits]:
    if not isinstance(value, Mapping):
        _refuse(key, f"tables, as in [{key}.NAME]")
    return {name: limits_from(limits, f"{key}.{name}") for name, limits in value.items()}


def _refuse(key: str, expected: str) -> Any:
    raise InvalidInput(f"{key} must be {expected}.")


DURATION, SIZE, SHARE, TEXT = "duration", "size", "0 to 1", "text"
_SHARE = number(0, 1)
LIMITS: dict[str, Key] = {
    "time": Key(_limit(_span), DURATION, "stop an attempt after this time", example='"2h"'),
    "memory": Key(
        _limit(_size), SIZE, "stop an attempt that uses more memory than this", example='"2G"'
    ),
    "silence": Key(
        _limit(_span),
        DURATION,
        "stop an attempt that shows no activity for this long (agents: 15m by default)",
        example='"15m"',
    ),
    "output": Key(_limit(_size), SIZE, "stop an attempt that prints more than this", '"1G"'),
}
WORKSPACE: dict[str, Key] = {
    "include": Key(
        _texts, "list of patterns", "files to copy into clones although git ignores them", "[]"
    ),
    "caches": Key(_folders, "list of folders", "ignored folders to copy into clones", "[]"),
    "setup": Key(_commands, "shell commands", "run in a clone before each attempt", "[]"),
    "teardown": Key(_commands, "shell commands", "run in a clone after each attempt", "[]"),
    "timeout": Key(_positive_span, DURATION, "time limit of each of these commands", '"10m"'),
    "snapshots": Key(number(2, 10_000, whole=True), "number", "snapshots kept per attempt", "50"),
    "keep_days": Key(
        number(0, 36_500),
        "days",
        "how long removed clones, and logs and checkouts of verifications, are kept",
        "7",
    ),
}
AGENT_TABLES = ("agents", "routing", "prices", "budget", "gateway")
TABLES: dict[str, dict[str, Key]] = {
    "store": {
        "durability": Key(
            one_of("full", "relaxed"),
            "full, relaxed",
            "full: a change is on disk before the command returns; relaxed: a moment later",
            '"full"',
        )
    },
    "run": {
        "workers": Key(
            _workers, "number or auto", "number of workers; auto: one per core", '"auto"'
        ),
        "nice": Key(number(0, 19, whole=True), "0 to 19", "niceness of commands", "10"),
        "grace": Key(_grace, DURATION, "time between SIGTERM and SIGKILL, at most 60s", '"3s"'),
        "capabilities": Key(
            _names, "list of names", "what this host can do, for tasks that require it", "[]"
        ),
    },
    "governor": {
        "strategy": Key(
            one_of(*STRATEGIES),
            ", ".join(STRATEGIES),
            "how to choose the number of workers, unless --strategy is given",
            '"auto"',
        ),
        "memory_limit": Key(
            _positive_size, SIZE, "memory for all attempts together", example='"6G"'
        ),
        "cpu_warning": Key(_SHARE, SHARE, "CPU load at which half the workers run", "0.60"),
        "cpu_danger": Key(_SHARE, SHARE, "CPU load above which nothing new starts", "0.80"),
        "ram_warning": Key(_SHARE, SHARE, "memory use at which half the workers run", "0.70"),
        "ram_danger": Key(_SHARE, SHARE, "memory use above which nothing new starts", "0.85"),
        "ram_emergency": Key(_SHARE, SHARE, "memory use above which attempts are stopped", "0.95"),
        "stall": Key(
            number(0, 100),
            "0 to 100",
            "percent of time stalled on memory above which attempts are stopped",
            "20",
        ),
        "ceiling": Key(_SHARE, SHARE, "share of memory that attempts may be planned for", "0.90"),
        "margin": Key(_SHARE, SHARE, "how far below its threshold a zone is left", "0.05"),
        "hold": Key(_span, DURATION, "how long the load must stay there to leave a zone", '"3s"'),
    },
    "limits": {
        **LIMITS,
        "dry_run": Key(
            yes_or_no, "true, false", "only report what would be stopped, stop nothing", "false"
        ),
        "types": Key(_types, "tables", "limits of one type of task: [limits.types.NAME]"),
    },
    "outputs": {
        "keep_days": Key(number(0, 36_500), "days", "delete outputs older than this", "30"),
        "keep_size": Key(_size, SIZE, "delete the oldest outputs above this total", '"10G"'),
        "keep_each": Key(_size, SIZE, "shorten an output above this to its start and end", '"8M"'),
    },
    "workspace": WORKSPACE,
    "merge": {
        "verify": Key(
            _commands,
            "list of commands",
            "run before work is merged, unless --verify is given",
            "[]",
            '["make test"]',
        ),
        "env": Key(
            _names,
            "list of names",
            "variables of yours that verification of an agent's work gets, too",
            "[]",
            '["DATABASE_URL"]',
        ),
        "agents_may_approve": Key(
            yes_or_no,
            "true, false",
            "agents that supervise over MCP may approve and reject tasks in review",
            "false",
        ),
    },
    "telemetry": {
        "traces": Key(
            yes_or_no,
            "true, false",
            "send traces (default: if an endpoint is set, here or in OTEL_EXPORTER_OTLP_ENDPOINT)",
            example="true",
        ),
        "endpoint": Key(
            _url,
            "URL",
            "OTLP/HTTP receiver of traces; the variables OTEL_EXPORTER_OTLP_* set everything else",
            example='"http://127.0.0.1:4318/v1/traces"',
        ),
        "content": Key(
            yes_or_no, "true, false", "send names, titles and reasons of failures, too", "false"
        ),
    },
}
