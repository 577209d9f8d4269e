"""What config.toml may say, checked: every key is known and has a value that makes sense."""

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from hypervisor.agents.builtin_profiles import BUILTIN
from hypervisor.agents.profile import AgentProfile, Price
from hypervisor.agents.routing import Route
from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput
from hypervisor.resources.limits import Limits
from hypervisor.resources.zones import DEFAULTS, Thresholds
from hypervisor.runs.spec import STRATEGIES

SIZE_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
SPAN_UNITS = {"ms": 1, "": 1000, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
LARGEST = 1 << 62
MOST_WORKERS = 10_000
LONGEST_GRACE = 60


class Settings(NamedTuple):
    """`workers` None is one for each core; `grace` is in seconds; sizes are in bytes, money is
    in millionths. `routes` are the user's own; routing.DEFAULTS come after them."""

    relaxed: bool = False
    workers: int | None = None
    nice: int = 10
    capabilities: tuple[str, ...] = ()
    grace: float = 3.0
    strategy: str = "auto"
    thresholds: Thresholds = DEFAULTS
    memory_limit: int | None = None
    limits: Limits = Limits(output=1 << 30)
    limits_by_type: Mapping[str, Limits] = MappingProxyType({})
    dry_run: bool = False
    keep_days: float = 30
    keep_size: int = 10 << 30
    keep_each: int = 8 << 20
    agents: Mapping[str, AgentProfile] = MappingProxyType(BUILTIN)
    routes: tuple[Route, ...] = ()
    prices: Mapping[str, Price] = MappingProxyType({})
    day_budget: int | None = None
    day_tokens: int | None = None


def settings_from(config: Mapping[str, Any]) -> Settings:
    """The settings in the tables of config.toml; InvalidInput names the key that is wrong."""
    _refuse_unknown("", config, (*TABLES, *AGENT_TABLES))
    store, run, governor, limits, outputs = (
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
        **run,
        **outputs,
        **_about_agents(config),
    )


def _about_agents(config: Mapping[str, Any]) -> dict[str, Any]:
    if not any(name in config for name in AGENT_TABLES):
        return {}
    from hypervisor.agents import config as configuring

    agents = configuring.agents_from(config.get("agents", {}))
    day_budget, day_tokens = configuring.budget_from(config.get("budget", {}))
    return {
        "agents": agents,
        "routes": configuring.routes_from(config.get("routing", []), agents),
        "prices": configuring.prices_from(config.get("prices", {})),
        "day_budget": day_budget,
        "day_tokens": day_tokens,
    }


def limits_from(data: object, where: str = "limits") -> Limits:
    """Limits as people write them: durations and sizes, "off" for none."""
    return Limits(**values(where, data, LIMITS))


def size(value: str | int, what: str = "") -> int:
    """`512M`, `2G`, `1.5G` or plain bytes, in bytes; a K is 1024 bytes."""
    text = str(value).strip().upper()
    text = text.removesuffix("IB") if text.endswith("IB") else text.removesuffix("B")
    number = text.rstrip("KMGT")
    amount = _scaled(value, number, SIZE_UNITS.get(text[len(number) :]))
    if amount is None:
        raise InvalidInput(f"{_named(what, value)} is no size: try 512M, 2G or 1.5G.")
    return amount


def span(value: str | float, what: str = "") -> int:
    """`90s`, `15m`, `2h`, `1d` or plain seconds, in milliseconds."""
    text = str(value).strip().lower()
    number = text.rstrip("mshd")
    amount = _scaled(value, number, SPAN_UNITS.get(text[len(number) :]))
    if amount is None:
        raise InvalidInput(f"{_named(what, value)} is no duration: try 90s, 15m, 2h or 1d.")
    return amount


def _scaled(value: object, number: str, unit: int | None) -> int | None:
    if unit is None or isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return None
    try:
        amount = float(number) * unit
    except (ValueError, OverflowError):
        return None
    return round(amount) if 0 <= amount < LARGEST else None  # NaN is neither


def _named(what: str, value: object) -> str:
    return f"{what}: {str(value)[:40]!r}" if what else f"{str(value)[:40]!r}"


def _thresholds(governor: dict[str, Any]) -> Thresholds:
    if "hold" in governor:
        governor["hold_ms"] = governor.pop("hold")
    found = Thresholds(**governor)
    rising = (
        ("cpu_warning", "cpu_danger"),
        ("ram_warning", "ram_danger"),
        ("ram_danger", "ram_emergency"),
        ("ceiling", "ram_emergency"),
    )
    for low, high in rising:
        if getattr(found, low) > getattr(found, high):
            raise InvalidInput(f"governor.{low} must not be above governor.{high}.")
    least = min(found.cpu_warning, found.ram_warning, found.stall / 100)
    if found.margin >= least:  # such a zone could never be left again
        raise InvalidInput(f"governor.margin must be below every threshold, so below {least:g}.")
    return found


def values(table: str, given: object, keys: Mapping[str, "Reader"]) -> dict[str, Any]:
    """The values of a table, each read by the reader of its key."""
    if not isinstance(given, Mapping):
        raise InvalidInput(f"{table} must be a table, as in [{table}].")
    _refuse_unknown(f"{table}.", given, keys)
    return {key: keys[key](f"{table}.{key}", value) for key, value in given.items()}


def _refuse_unknown(prefix: str, given: Mapping[str, Any], known: Collection[str]) -> None:
    wrong = next((key for key in given if key not in known), None)
    if wrong is None:
        return
    from difflib import get_close_matches

    near = get_close_matches(wrong, known, 1)
    if near:
        raise InvalidInput(f"{prefix}{wrong} is unknown: did you mean {prefix}{near[0]}?")
    raise InvalidInput(f"{prefix}{wrong} is unknown: there are {', '.join(known)}.")


# What a key may hold. Each reader takes the key's full name and its value.

Reader = Callable[[str, Any], Any]


def _size(what: str, value: Any) -> int:
    return size(value, what)


def _positive_size(what: str, value: Any) -> int:
    return size(value, what) or _refuse(what, "more than 0")


def _span(what: str, value: Any) -> int:
    return span(value, what)


def _grace(what: str, value: Any) -> float:
    seconds = span(value, what) / 1000
    return seconds if seconds <= LONGEST_GRACE else _refuse(what, f"at most {LONGEST_GRACE} s")


def _limit(read: Reader) -> Reader:
    return lambda what, value: 0 if value == "off" else read(what, value)


def number(low: float, high: float, whole: bool = False) -> Reader:
    kind = "a whole number" if whole else "a number"

    def check(what: str, value: Any) -> Any:
        right = isinstance(value, int) or (isinstance(value, float) and not whole)
        if not right or isinstance(value, bool) or not low <= value <= high:
            _refuse(what, f"{kind} between {low:,} and {high:,}")
        return value

    return check


def _workers(what: str, value: Any) -> int | None:
    if value == "auto":
        return None
    if isinstance(value, str):
        _refuse(what, 'a whole number or "auto"')
    return int(number(1, MOST_WORKERS, whole=True)(what, value))


def _names(what: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        _refuse(what, 'a list of names, as in ["gpu"]')
    return validate.names(what, value)


def one_of(*choices: str) -> Reader:
    def check(what: str, value: Any) -> Any:
        return value if value in choices else _refuse(what, f"one of {', '.join(choices)}")

    return check


def _yes_or_no(what: str, value: Any) -> bool:
    return value if isinstance(value, bool) else _refuse(what, "true or false")


def _types(what: str, value: Any) -> Mapping[str, Limits]:
    if not isinstance(value, Mapping):
        _refuse(what, f"tables, as in [{what}.NAME]")
    return {name: limits_from(limits, f"{what}.{name}") for name, limits in value.items()}


def _refuse(what: str, wanted: str) -> Any:
    raise InvalidInput(f"{what} must be {wanted}.")


LIMITS: dict[str, Reader] = {
    "time": _limit(_span),
    "memory": _limit(_size),
    "silence": _limit(_span),
    "output": _limit(_size),
}
_SHARE = number(0, 1)
AGENT_TABLES = ("agents", "routing", "prices", "budget")
TABLES: dict[str, dict[str, Reader]] = {
    "store": {"durability": one_of("full", "relaxed")},
    "run": {
        "workers": _workers,
        "nice": number(0, 19, whole=True),
        "grace": _grace,
        "capabilities": _names,
    },
    "governor": {
        "strategy": one_of(*STRATEGIES),
        "memory_limit": _positive_size,
        "cpu_warning": _SHARE,
        "cpu_danger": _SHARE,
        "ram_warning": _SHARE,
        "ram_danger": _SHARE,
        "ram_emergency": _SHARE,
        "stall": number(0, 100),
        "ceiling": _SHARE,
        "margin": _SHARE,
        "hold": _span,
    },
    "limits": {**LIMITS, "types": _types, "dry_run": _yes_or_no},
    "outputs": {"keep_days": number(0, 36_500), "keep_size": _size, "keep_each": _size},
}
