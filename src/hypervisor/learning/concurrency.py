"""How many attempts ran at once, from the event log.

A worker runs one attempt at a time, even if it has claimed several: the next begins when the last
has ended. Attempts that end at the same moment were too short to distinguish and share the time. If
the number changed while an attempt ran, the harmonic mean counts: if all wait for one lock, half
the time alone and half as one of eight achieve as much as 1.8 at once, not 4.5. The number at the
start is recorded, too: in a queue only those ahead count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hypervisor.core.records import NamedTuple
from hypervisor.queue.event import Event

RAN = ("complete", "fail", "back_off", "block", "crash", "poison")
ENDS = (*RAN, "release", "cancel")


class EndedRun(NamedTuple):
    """An attempt that has ended: when it actually began, how long it took, and how many attempts
    of its batch, including itself, ran on its host at the same time."""

    number: int  # of the event
    task: str
    attempt: int
    batch: str
    began: float  # milliseconds since 1970
    took: float  # milliseconds
    at_once: float
    at_first: int  # when it began


class _Busy:
    """A worker with claims: since when it has been running the current one, and how many were
    running then."""

    def __init__(self, since: int, share: float, among: int) -> None:
        self.claims: set[tuple[str, int | None]] = set()
        self.since, self.share, self.among = since, share, among


class _BatchOnHost:
    """A batch on a host: its busy workers, and each one's share of the time."""

    def __init__(self, at: int) -> None:
        self.busy: dict[str, _Busy] = {}
        self.at, self.share = at, 0.0

    def advance(self, at: int) -> None:
        if at > self.at:
            self.share += (at - self.at) / max(len(self.busy), 1)
            self.at = at


class ConcurrencyTracker:
    """Follows claims and their ends. Claims from before the first event are unknown and ignored."""

    def __init__(self) -> None:
        self._places: dict[tuple[str, str], _BatchOnHost] = {}

    def follow(self, events: Sequence[Event]) -> list[EndedRun]:
        """The attempts that ended with these events, in order."""
        together = Counter((e.actor, e.at) for e in events if e.kind in RAN)
        remaining = Counter(together)
        runs = []
        for event in events:
            if event.kind == "claim" and event.batch:
                self._begin(event)
            elif event.kind in ENDS and event.batch:
                moment = (event.actor, event.at)
                remaining[moment] -= event.kind in RAN
                ran = self._end(event, together[moment], remaining[moment])
                runs += [ran] if ran else []
        return runs

    def _begin(self, event: Event) -> None:
        place = self._places.setdefault(_where(event), _BatchOnHost(event.at))
        place.advance(event.at)
        among = len(place.busy) + 1
        worker = place.busy.setdefault(event.actor, _Busy(event.at, place.share, among))
        worker.claims.add((event.task, event.attempt))

    def _end(self, event: Event, together: int, remaining: int) -> EndedRun | None:
        place = self._places.get(_where(event))
        worker = place.busy.get(event.actor) if place else None
        if place is None or worker is None or (event.task, event.attempt) not in worker.claims:
            return None
        place.advance(event.at)
        worker.claims.discard((event.task, event.attempt))
        ran = _ran(event, place, worker, together) if event.kind in RAN else None
        if ran and not remaining:
            worker.since, worker.share, worker.among = event.at, place.share, len(place.busy)
        if not worker.claims:
            del place.busy[event.actor]
        if not place.busy:
            del self._places[_where(event)]
        return ran


def _ran(event: Event, place: _BatchOnHost, worker: _Busy, together: int) -> EndedRun:
    span = event.at - worker.since
    took = span / together
    share = place.share - worker.share
    at_once = span / share if share > 0 else len(place.busy)
    return EndedRun(
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
