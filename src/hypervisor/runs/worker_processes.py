"""The worker processes of this host: starting, alive, leaving or dead."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

from hypervisor.core.records import NamedTuple
from hypervisor.queue.pause import BATCH, Pause
from hypervisor.queue.rescue import reap_worker
from hypervisor.queue.sql import claims
from hypervisor.queue.sql import pauses as pauses_sql
from hypervisor.resources.allocation import Pool
from hypervisor.runs import sql
from hypervisor.runs.spec import ActiveWorker

if TYPE_CHECKING:
    from hypervisor.queue.context import Context
    from hypervisor.queue.lease import Holder, Worker
    from hypervisor.runs.spec import Running

STARTING_MS = 10_000
MAX_FAILED_STARTS = 3
MAX_RUNNING = 10_000
ACTOR = "supervisor"

logger = logging.getLogger("hypervisor.runs")


class LiveWorkers(NamedTuple):
    """The live workers, and the attempt that each is running, if any."""

    workers: tuple[ActiveWorker, ...]
    running: dict[str, Running]

    def of(self, pool: Pool) -> list[ActiveWorker]:
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
        self.starting: dict[int, tuple[Pool, int]] = {}  # pool and start time by pid
        self.leaving: set[str] = set()
        self._failed_starts: Counter[Pool] = Counter()
        self._last_look = LiveWorkers((), {})

    def collect_ended(self) -> bool:
        """Whether any of our workers has ended. One that exits with an error before it has
        registered failed to start."""
        ended = self.hv.launcher.reap()
        for pid, code in ended:
            pool, _ = self.starting.pop(pid, (None, 0))
            if pool and code > 0:
                about = {"batch": pool.batch}
                logger.warning("worker %d exited with %d while starting", pid, code, extra=about)
                self._note_failed_start(pool)
        return bool(ended)

    def look(self, now: int) -> LiveWorkers:
        """The live workers; cleans up after the dead ones."""
        workers = self.hv.store.read(sql.at_work, self.hv.probe.boot())
        dead_workers = [worker for worker in workers if self.hv.probe.is_gone(worker.worker)]
        for dead in dead_workers:
            logger.info("%s died", dead.worker.name, extra={"batch": dead.batch})
            reap_worker(self.hv, dead.worker, self._held_by(dead.worker.id, now), now)
            self.hv.store.write_unsynced(sql.retire, dead.worker.id, now)
        alive = [worker for worker in workers if worker not in dead_workers]
        self.leaving &= {worker.worker.id for worker in alive}
        for worker in alive:
            if self.starting.pop(worker.worker.pid, None):
                self._failed_starts[pool_of(worker)] = 0
        self.starting = {
            pid: start for pid, start in self.starting.items() if now - start[1] < STARTING_MS
        }
        by_worker: dict[str, Running] = {}
        for attempt in self.hv.store.read(sql.running, None, MAX_RUNNING):
            by_worker.setdefault(attempt.worker.id, attempt)
        self._last_look = LiveWorkers(tuple(alive), by_worker)
        return self._last_look

    def running_here(self) -> list[Running]:
        """The attempts of this host's workers, as of the last look."""
        live = self._last_look
        ids = (worker.worker.id for worker in live.workers)
        return [live.running[id] for id in ids if id in live.running]

    def staying(self, live: LiveWorkers, pool: Pool) -> list[ActiveWorker]:
        return [worker for worker in live.of(pool) if worker.worker.id not in self.leaving]

    def starting_by_pool(self) -> Counter[Pool]:
        return Counter(pool for pool, _ in self.starting.values())

    def start(self, pool: Pool, now: int) -> None:
        pid = self.hv.launcher.start_worker(*(part for part in pool if part))
        self.starting[pid] = (pool, now)
        logger.debug("started worker %d", pid, extra={"batch": pool.batch})

    def signal(self, worker: Worker, request: str) -> None:
        """Ask a worker to "drain" or to "stop"."""
        self.leaving.add(worker.id)
        self.hv.launcher.signal(worker, request)

    def _held_by(self, worker: str, now: int) -> list[Holder]:
        """The claims of a dead worker."""
        boot = self.hv.probe.boot()
        holders = self.hv.store.read(claims.holders, boot, now)
        return [holder for holder in holders if holder.worker.id == worker]

    def _note_failed_start(self, pool: Pool) -> None:
        """Pause a batch after several failed starts; it would be tried forever."""
        self._failed_starts[pool] += 1
        if self._failed_starts[pool] >= MAX_FAILED_STARTS:
            self._failed_starts[pool] = 0
            reason = "its workers could not start; see supervisor.log next to the store"
            pause = Pause(BATCH, pool.batch, reason, ACTOR, 0)
            self.hv.store.write(pauses_sql.pause, pause, self.hv.now())


def pool_of(worker: ActiveWorker) -> Pool:
    return Pool(worker.batch, worker.agent)
