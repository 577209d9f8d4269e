"""The event log: one numbered line for everything that changed."""

from typing import NamedTuple

from hypervisor.domain.task import Json


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
