"""How many attempts ran at once, by the event log.

A worker runs one attempt at a time, also when it has claimed several: the next
begins when the last has ended. Several that end in the same moment were too short
to be told apart and share the time. Where the number changed while an attempt ran, the
harmonic mean counts: half the time alone and half as one of eight got as much done
as if there had been 1.8, not 4.5, where all wait for one lock. How many there were when it
began is told too: in a queue those count, whoever comes later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from hypervisor.queue.event import Event

RAN = ("complete", "fail", "back_off", "block", "crash", "poison")
ENDS = (*RAN, "release", "cancel")


class Ran(NamedTuple):
    """An attempt that has ended: when it really began, how long it took, and how many attempts of
    its batch ran on its host meanwhile, itself included."""

    number: int  # of the event
    task: str
    attempt: int
    batch: str
    began: float  # milliseconds since 1970
    took: float  # milliseconds
    at_once: float
    at_first: int  # when it began


class _Busy:
    """A worker with claims: since when it has been at the present one, and among how many it
    began."""

    def __init__(self, since: int, share: float, among: int) -> None:
        self.held: set[tuple[str, int | None]] = set()
        self.since, self.share, self.among = since, share, among


class _Place:
    """A batch on a host: its busy workers, and the time that each got if they shared it."""

    def __init__(self, at: int) -> None:
        self.busy: dict[str, _Busy] = {}
        self.at, self.share = at, 0.0

    def advance(self, at: int) -> None:
        if at > self.at:
            self.share += (at - self.at) / max(len(self.busy), 1)
            self.at = at


class ConcurrencyTracker:
    """Follows claims and their ends. What was claimed before the first event it is shown is
    not known, and what comes of that is not told."""

    def __init__(self) -> None:
        self._places: dict[tuple[str, str], _Place] = {}

    def follow(self, events: Sequence[Event]) -> list[Ran]:
        """The attempts that ended with these events, in order."""
        together = Counter((e.actor, e.at) for e in events if e.kind in RAN)
        left = Counter(together)
        found = []
        for event in events:
            if event.kind == "claim" and event.batch:
                self._begin(event)
            elif event.kind in ENDS and event.batch:
                moment = (event.actor, event.at)
                left[moment] -= event.kind in RAN
                ran = self._end(event, together[moment], left[moment])
                found += [ran] if ran else []
        return found

    def _begin(self, event: Event) -> None:
        place = self._places.setdefault(_where(event), _Place(event.at))
        place.advance(event.at)
        among = len(place.busy) + 1
        worker = place.busy.setdefault(event.actor, _Busy(event.at, place.share, among))
        worker.held.add((event.task, event.attempt))

    def _end(self, event: Event, together: int, left: int) -> Ran | None:
        place = self._places.get(_where(event))
        worker = place.busy.get(event.actor) if place else None
        if place is None or worker is None or (event.task, event.attempt) not in worker.held:
            return None
        place.advance(event.at)
        worker.held.discard((event.task, event.attempt))
        ran = _ran(event, place, worker, together) if event.kind in RAN else None
        if ran and not left:
            worker.since, worker.share, worker.among = event.at, place.share, len(place.busy)
        if not worker.held:
            del place.busy[event.actor]
        if not place.busy:
            del self._places[_where(event)]
        return ran


def _ran(event: Event, place: _Place, worker: _Busy, together: int) -> Ran:
    span = event.at - worker.since
    took = span / together
    share = place.share - worker.share
    at_once = span / share if share > 0 else len(place.busy)
    return Ran(
        event.seq,
        event.task,
        event.attempt or 0,
        event.batch,
        event.at - took,
        took,
        max(at_once, 1.0),
        worker.among,
    )


def _where(event: Event) -> tuple[str, str]:
    """The batch and the host: a worker's id is NAME@HOST/…"""
    return event.batch, event.actor.rpartition("@")[2].partition("/")[0]
