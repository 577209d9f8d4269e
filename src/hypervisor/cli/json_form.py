"""Values as `--json` prints them: one unit for each kind of value, one meaning for each key.

docs/json.md describes it, docs/json-schema.json is generated from it. VERSION counts up when a
key goes or gets another meaning.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hypervisor.queue.context import Context

VERSION = 1
NO_NAMES: Mapping[str, str] = {}
BATCH_IS_ID = frozenset(
    {"Task", "Event", "CurrentAttempt", "AgentSession", "Chunk", "Rule", "ToDecide"}
)
BATCH_IS_NAME = frozenset({"Summary", "BatchReport"})  # their `id` is that of the batch
SPEC_UNITS = {  # of durations and money in the stored spec of a batch
    "time": 1_000,
    "silence": 1_000,
    "retry_delay": 1_000,
    "budget": 1_000_000,
    "task_budget": 1_000_000,
}
UNITS = {"_ms": ("_seconds", 1_000), "_kb": ("_bytes", 1 / 1024), "_micros": ("", 1_000_000)}
WHOLE_NAMES = {"milliseconds": ("seconds", 1_000)}


def plain(value: Any, names: Mapping[str, str] = NO_NAMES) -> Any:
    """Values as JSON knows them: a named tuple becomes an object. `names` of batches by id."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return _members(value, names)
    if isinstance(value, (list, tuple)):
        return [plain(item, names) for item in value]
    if isinstance(value, dict):
        return {name: plain(item, names) for name, item in value.items()}
    return value


def named(hv: Context, value: Any) -> Any:
    """The same with the names of the batches, which only the store knows."""
    from hypervisor.queue.sql import queries

    ids = set(filter(None, _batch_ids(value)))
    return plain(value, hv.store.read(queries.batch_names, sorted(ids)) if ids else NO_NAMES)


@cache
def converted(kind: Any) -> Collection[tuple[str, str, float]]:
    """The fields of a named tuple that have another unit: old name, new name, divisor."""
    fields: tuple[str, ...] = kind._fields
    return tuple(
        (field, *change)
        for field in fields
        if (change := _change(field)) is not None and change[0] not in fields
    )


def _change(field: str) -> tuple[str, float] | None:
    if field in WHOLE_NAMES:
        return WHOLE_NAMES[field]
    for ending, (unit, divisor) in UNITS.items():
        if field.endswith(ending):
            return field.removesuffix(ending) + unit, divisor
    return None


def _members(value: Any, names: Mapping[str, str]) -> dict[str, Any]:
    kind: Any = type(value)
    members: dict[str, Any] = _batch(value, names)
    for name, item in value._asdict().items():
        members.setdefault(name, plain(item, names))
    for old, new, divisor in converted(kind):
        members[new] = _in_unit(members.pop(old), divisor)
    if kind.__name__ in BATCH_IS_NAME:
        del members["id"]
    return members


def _batch(value: Any, names: Mapping[str, str]) -> dict[str, Any]:
    """The name and the id of the batch that it is about; of a batch, its spec."""
    kind = type(value).__name__
    if kind in BATCH_IS_ID:
        return {"batch": names.get(value.batch, value.batch), "batch_id": value.batch}
    if kind == "Batch" and isinstance(value.spec, dict):
        return {"spec": _spec(value.spec)}
    return {"batch": value.batch, "batch_id": value.id} if kind in BATCH_IS_NAME else {}


def _spec(stored: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _in_unit(item, SPEC_UNITS[name]) if name in SPEC_UNITS else item
        for name, item in stored.items()
    }


def _in_unit(amount: float | None, divisor: float) -> float | int | None:
    return None if amount is None else _exact(amount / divisor)


def _exact(amount: float) -> float | int:
    return int(amount) if amount == int(amount) else amount


def _batch_ids(value: Any) -> Iterator[str]:
    if type(value).__name__ in BATCH_IS_ID:
        yield value.batch
    if isinstance(value, (list, tuple)):
        for item in value:
            if isinstance(item, (list, tuple, dict)):
                yield from _batch_ids(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _batch_ids(item)
