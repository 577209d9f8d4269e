"""How many workers a host may have beyond one per core, while their commands wait.

Commands that sleep or wait for a network leave the CPUs idle. As long as all workers are busy,
tasks are ready, and the workers use little CPU, their number is doubled. Work that needs its CPU
never gets there; work that begins to need it goes back to one per core.
"""

from __future__ import annotations

from math import exp
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hypervisor.resources.zones import Load

PER_CORE, AT_MOST = 8, 32  # workers per core, and above the number of cores
PATIENCE_MS, STEP_MS = 1000, 500  # before the first step, and between steps
HOLD_MS = 30_000  # after a step back
SMOOTHING_MS = 500
BUSY_CPU, FULL_CPU = 0.6, 0.9  # of the host: above the first nothing more starts
BUSY_DISK = 0.2  # share of the time in which processes wait for a disk
CPU_PER_WORKER = 0.2  # in cores: a worker that uses more is not waiting


class Headroom:
    def __init__(self, cores: int, cpus: int) -> None:
        """`cpus` are those of the machine: its load is a share of them. 0: stay with the cores."""
        self.limit = self._cores = cores
        self._cpus = cpus
        self._most = min(PER_CORE * cores, cores + AT_MOST) if cpus else cores
        self._full_since: int | None = None
        self._hold_until: int | None = None
        self._at = 0
        self._load = (0.0, 0.0, 0.0)  # CPU, our own, disk

    def tick(self, now: int, load: Load, busy: int, more: bool) -> None:
        """`busy` workers run something; `more`: tasks are ready for which there is no worker."""
        weight = 1 - exp(-max(0, now - self._at) / SMOOTHING_MS)
        self._at = now
        latest = (load.cpu, load.own, load.disk)
        cpu, own, disk = self._load = _moved(self._load, latest, weight)
        if not busy:
            self.limit = self._cores
        if self.limit > self._cores and cpu > FULL_CPU:
            self.limit = max(self._cores, self.limit // 2)
            self._full_since, self._hold_until = None, now + HOLD_MS
        if not more or 2 * busy <= self.limit:
            self._full_since = None
            return
        if self._full_since is None:
            self._full_since = now + PATIENCE_MS - STEP_MS
        is_held = self._hold_until is not None and 0 < self._hold_until - now <= HOLD_MS
        waits = cpu < BUSY_CPU and disk < BUSY_DISK and own * self._cpus < CPU_PER_WORKER * busy
        if waits and not is_held and now - self._full_since >= STEP_MS:
            self.limit = min(2 * self.limit, self._most)
            self._full_since = now


def _moved(
    last: tuple[float, float, float], latest: tuple[float, float, float], weight: float
) -> tuple[float, float, float]:
    cpu, own, disk = (old + weight * (new - old) for old, new in zip(last, latest, strict=True))
    return cpu, own, disk
