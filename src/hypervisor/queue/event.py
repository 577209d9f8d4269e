"""The event log: one numbered line for every change."""

from typing import NamedTuple

from hypervisor.queue.task import Json


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


class Cursor(NamedTuple):
    """The position of a reader in the event log: `number` is the last event read."""

    name: str
    number: int
    moved_at: int
