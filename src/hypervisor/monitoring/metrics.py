"""How the load of this host and the work on it changed over time: two rings of fixed size.

A ring is a file with a slot per second of ten minutes (in memory, with the supervisor's lock), or
per minute of thirty days (with the outputs). A slot carries its own time, so what is older than the
ring is recognized. The supervisor writes while something runs and once more after that: an idle one
writes nothing. Each host of a shared store has its own.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from typing import TYPE_CHECKING

from hypervisor.core.records import NamedTuple
from hypervisor.queue.lifecycle import DONE, FAILED
from hypervisor.queue.sql import agent_sessions, counts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypervisor.queue.context import Context

ZONES = ("safe", "warning", "danger", "emergency")
SLOT = struct.Struct("<qfffBxHIIq")
SECOND, MINUTE = 1_000, 60_000
SECONDS, MINUTES = 600, 43_200
MAX_POINTS = 2_000


class Sample(NamedTuple):
    """A moment on this host. `done` and `failed` count the tasks of the whole store."""

    at: int
    cpu: float  # share of all cores, by everything; of 1
    own: float  # by our attempts
    ram: float
    zone: str
    running: int
    done: int
    failed: int
    cost_micros: int  # of agents, in the last 24 hours


class Ring:
    """A file of samples, one for each step of time."""

    def __init__(self, path: str, step: int, slots: int) -> None:
        self._path, self._step, self._slots = path, step, slots

    def write(self, sample: Sample) -> None:
        values = (*sample[:4], ZONES.index(sample.zone), min(sample.running, 65_535))
        packed = SLOT.pack(*values, sample.done, sample.failed, sample.cost_micros)
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(file, packed, sample.at // self._step % self._slots * SLOT.size)
        finally:
            os.close(file)

    def read(self, since: int, now: int) -> list[Sample]:
        """The samples after `since`, oldest first."""
        try:
            with open(self._path, "rb") as file:
                data = file.read(self._slots * SLOT.size)
        except OSError:
            return []
        whole = len(data) - len(data) % SLOT.size
        rows = [row for row in SLOT.iter_unpack(data[:whole]) if since < row[0] <= now]
        return [
            Sample._make((*row[:4], ZONES[row[4] % len(ZONES)], *row[5:])) for row in sorted(rows)
        ]


def second_ring(hv: Context) -> Ring:
    return Ring(os.path.join(hv.places.runtime, "metrics"), SECOND, SECONDS)


def minute_ring(hv: Context) -> Ring:
    return Ring(os.path.join(hv.places.data, f"metrics-{hv.probe.host()}"), MINUTE, MINUTES)


class MetricsRecorder:
    """The supervisor's part."""

    def __init__(self, hv: Context) -> None:
        self._hv = hv
        self._second = self._minute = 0
        self._cost = 0
        self._was_running = False

    def tick(self, now: int) -> None:
        if now // SECOND == self._second:
            return
        self._second = now // SECOND
        status = self._hv.launcher.read_status() or {}
        running = int(status.get("workers", 0))
        if running or self._was_running:
            with suppress(OSError):  # a full disk: the work is more important
                self._record(now, status, running)
        self._was_running = bool(running)

    def last_look(self) -> None:
        """Nothing runs any more."""

    def _record(self, now: int, status: dict[str, object], running: int) -> None:
        states = _totals(self._hv)
        cpu, own, ram = (float(str(status.get(name, 0))) for name in ("cpu", "own", "ram"))
        zone = str(status.get("zone", ZONES[0]))
        ended = (states.get(DONE, 0), states.get(FAILED, 0))
        if now // MINUTE != self._minute:
            day = now - 24 * 60 * MINUTE
            self._cost = self._hv.store.read(agent_sessions.spent, since=day).cost_micros
        sample = Sample(now, cpu, own, ram, zone, running, *ended, self._cost)
        second_ring(self._hv).write(sample)
        if now // MINUTE != self._minute:
            self._minute = now // MINUTE
            minute_ring(self._hv).write(sample)


def metrics(hv: Context, span: int = 10 * MINUTE, now: int | None = None) -> tuple[Sample, ...]:
    """Read how the load of this host and the work on it changed, at most 2,000 moments."""
    at = hv.at(now)
    ring = second_ring(hv) if span <= SECONDS * SECOND else minute_ring(hv)
    return tuple(thinned(ring.read(at - span, at), MAX_POINTS))


def thinned(samples: Sequence[Sample], most: int) -> list[Sample]:
    """At most that many, each the mean of its neighbors; the worst zone of them counts."""
    size = -(-len(samples) // most) if samples else 1
    if size == 1:
        return list(samples)
    parts = (samples[start : start + size] for start in range(0, len(samples), size))
    return [_mean(part) for part in parts]


def _mean(part: Sequence[Sample]) -> Sample:
    last, count = part[-1], len(part)
    return last._replace(
        cpu=sum(sample.cpu for sample in part) / count,
        own=sum(sample.own for sample in part) / count,
        ram=sum(sample.ram for sample in part) / count,
        zone=max((sample.zone for sample in part), key=ZONES.index),
        running=round(sum(sample.running for sample in part) / count),
    )


def _totals(hv: Context) -> dict[str, int]:
    totals: dict[str, int] = {}
    for (_, _, state), tasks in hv.store.read(counts.counts).items():
        totals[state] = totals.get(state, 0) + tasks
    return totals
