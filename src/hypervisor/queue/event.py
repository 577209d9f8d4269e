"""The event log: one numbered line for everything that changed."""

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
    """How far somebody who reads the events has come: `number` is the last one seen."""

    name: str
    number: int
    moved_at: int
