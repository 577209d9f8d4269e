"""The workers of this host as their supervisor sees them: starting, alive, leaving, dead."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from hypervisor.queue.pool import Pool
from hypervisor.queue.rescue import reap_worker
from hypervisor.queue.sql import claims
from hypervisor.runs import sql
from hypervisor.runs.spec import BATCH, AtWork, Pause

if TYPE_CHECKING:
    from hypervisor.queue.context import Context
    from hypervisor.queue.lease import Holder, Worker
    from hypervisor.runs.spec import Running

STARTING_MS = 10_000
MOST_FAILED_STARTS = 3
MOST_RUNNING = 10_000
ACTOR = "supervisor"

logger = logging.getLogger("hypervisor.runs")


class LiveWorkers(NamedTuple):
    """The workers that live, and what each is running, if anything."""

    workers: tuple[AtWork, ...]
    running: dict[str, Running]

    def of(self, pool: Pool) -> list[AtWork]:
        return [worker for worker in self.workers if pool_of(worker) == pool]

    def by_pool(self) -> dict[Pool, set[str]]:
        """The ids of the workers of each pool."""
        pools: dict[Pool, set[str]] = {}
        for worker in self.workers:
            pools.setdefault(pool_of(worker), set()).add(worker.worker.id)
        return pools


class WorkerProcesses:
    def __init__(self, hv: Context) -> None:
        self.hv = hv
        self.starting: dict[int, tuple[Pool, int]] = {}  # by pid: for whom, since when
        self.leaving: set[str] = set()
        self._failed_starts: Counter[Pool] = Counter()

    def collect_ended(self) -> bool:
        """Whether any of our workers has ended. One that ends by itself with an error could not
        even begin."""
        ended = self.hv.launcher.reap()
        for pid, code in ended:
            pool, _ = self.starting.pop(pid, (None, 0))
            if pool and code > 0:
                about = {"batch": pool.batch}
                logger.warning("worker %d exited with %d at its start", pid, code, extra=about)
                self._note_failed_start(pool)
        return bool(ended)

    def look(self, now: int) -> LiveWorkers:
        """Who lives; whoever is gone is cleaned up after."""
        known = self.hv.store.read(sql.at_work, self.hv.probe.boot())
        gone = [worker for worker in known if self.hv.probe.is_gone(worker.worker)]
        for dead in gone:
            logger.info("%s died", dead.worker.name, extra={"batch": dead.batch})
            reap_worker(self.hv, dead.worker, self._held_by(dead.worker.id, now), now)
            self.hv.store.write_unsynced(sql.retire, dead.worker.id, now)
        alive = [worker for worker in known if worker not in gone]
        self.leaving &= {worker.worker.id for worker in alive}
        for worker in alive:
            if self.starting.pop(worker.worker.pid, None):
                self._failed_starts[pool_of(worker)] = 0
        self.starting = {
            pid: start for pid, start in self.starting.items() if now - start[1] < STARTING_MS
        }
        by_worker: dict[str, Running] = {}
        for attempt in self.hv.store.read(sql.running, None, MOST_RUNNING):
            by_worker.setdefault(attempt.worker.id, attempt)
        return LiveWorkers(tuple(alive), by_worker)

    def staying(self, live: LiveWorkers, pool: Pool) -> list[AtWork]:
        return [worker for worker in live.of(pool) if worker.worker.id not in self.leaving]

    def starting_by_pool(self) -> Counter[Pool]:
        return Counter(pool for pool, _ in self.starting.values())

    def start(self, pool: Pool, now: int) -> None:
        pid = self.hv.launcher.start_worker(*(part for part in pool if part))
        self.starting[pid] = (pool, now)
        logger.debug("started worker %d", pid, extra={"batch": pool.batch})

    def signal(self, worker: Worker, what: str) -> None:
        """Ask a worker to "drain" or to "stop"."""
        self.leaving.add(worker.id)
        self.hv.launcher.signal(worker, what)

    def _held_by(self, worker: str, now: int) -> list[Holder]:
        """Its journal tells what it had not begun, and is gone once it is cleaned up after."""
        boot = self.hv.probe.boot()
        holders = self.hv.store.read(claims.holders, boot, now)
        return [holder for holder in holders if holder.worker.id == worker]

    def _note_failed_start(self, pool: Pool) -> None:
        """A batch whose workers cannot start would be tried for ever."""
        self._failed_starts[pool] += 1
        if self._failed_starts[pool] >= MOST_FAILED_STARTS:
            self._failed_starts[pool] = 0
            reason = "its workers could not start; supervisor.log beside the store says why"
            pause = Pause(BATCH, pool.batch, reason, ACTOR, 0)
            self.hv.store.write(sql.pause, pause, self.hv.now())


def pool_of(worker: AtWork) -> Pool:
    return Pool(worker.batch, worker.agent)
