"""The event log: one numbered line for every change."""

from hypervisor.core.records import NamedTuple
from hypervisor.queue.task import Json

# What older versions wrote; the log is never rewritten, so it is translated when it is read.
OLD_KINDS = {"brake": "cooldown", "rest": "cooldown_wait", "lift_brake": "cooldown_end"}
OLD_MESSAGE = "said"


class Event(NamedTuple):
    seq: int
    at: int
    kind: str
    task: str
    batch: str
    attempt: int | None
    state: str | None
    actor: str
    data: Json


def current_data(data: Json) -> Json:
    """The data of an event, with the sentence of older versions under its current key."""
    if not isinstance(data, dict) or OLD_MESSAGE not in data or "message" in data:
        return data
    return {"message" if key == OLD_MESSAGE else key: value for key, value in data.items()}


class Cursor(NamedTuple):
    """The position of a reader in the event log: `number` is the last event read."""

    name: str
    number: int
    moved_at: int
