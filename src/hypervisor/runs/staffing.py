"""Decides how many workers each pool gets: its demand, the capacity of the host, and who exits.

A pool is a batch, or one agent of a batch. Everything is decided again in every tick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypervisor.queue.sql import stops as stops_sql
from hypervisor.resources.admission import Footprint
from hypervisor.resources.allocation import Demand, Pool, assign_workers
from hypervisor.resources.governor import Decision, RunningAttempt
from hypervisor.resources.headroom import Headroom
from hypervisor.runs import sql
from hypervisor.runs.adaptive_pools import PER_CORE, AdaptivePools
from hypervisor.runs.worker_processes import LiveWorkers, WorkerProcesses, pool_of

if TYPE_CHECKING:
    from hypervisor.agents.pools import AgentPools
    from hypervisor.queue.context import Context
    from hypervisor.resources.governor import Governor
    from hypervisor.runs.current_specs import CurrentSpecs
    from hypervisor.runs.fleet import Fleet
    from hypervisor.runs.spec import ActiveWorker, Ready

AGENTS_PER_HOST = 5
ACTOR = "supervisor"

ReadyByPool = dict[Pool, "Ready"]


class Staffing:
    def __init__(
        self,
        hv: Context,
        governor: Governor,
        cores: int,
        *,
        specs: CurrentSpecs,
        agents: AgentPools,
        adaptive: AdaptivePools,
        cpus: int = 0,
    ) -> None:
        """`cores` are those that this process may use, `cpus` all of the machine; 0: unknown."""
        self.hv, self.governor, self.cores = hv, governor, cores
        self.specs, self.agents, self.adaptive = specs, agents, adaptive
        self.workers, self.fleet = WorkerProcesses(hv), _fleet(hv)
        self.headroom = Headroom(cores, cpus)
        if self.fleet is not None:
            agents.share_of_agent = self.fleet.share_of_agent
        self.batches: tuple[str, ...] = ()  # with demand in the last tick

    def begin(self, now: int) -> None:
        """Start a new tick: drop what was cached in the previous one."""
        self.specs.refresh()
        self.agents.begin(now)
        if self.fleet is not None:
            self.fleet.begin(now)

    def ready(self) -> ReadyByPool:
        """The ready tasks of each pool, best first."""
        ready: ReadyByPool = {}
        for lane in self.hv.store.read(sql.ready, None):
            if self.fleet and not self.fleet.accepts(lane.batch, self.specs.spec(lane.batch)):
                continue
            for name in self.agents.agents_of(lane.batch):
                pool = Pool(lane.batch, name)
                if self.agents.serves(pool) and {*lane.requires} <= self.agents.capabilities(pool):
                    ready[pool] = ready[pool].joined(lane) if pool in ready else lane
        return ready

    # Demand

    def demands(self, now: int, live: LiveWorkers, ready: ReadyByPool) -> list[Demand]:
        """One worker for each running and each ready task, counting workers that are starting or
        idle. No worker is stopped for lack of work."""
        demands = []
        starting = self.workers.starting_by_pool()
        for pool in dict.fromkeys([*ready, *live.by_pool(), *starting]):
            staying = self.workers.staying(live, pool)
            busy = sum(worker.worker.id in live.running for worker in staying)
            more = ready.get(pool)
            needed = max(len(staying) + starting[pool], busy + (more.tasks if more else 0))
            needed = min(needed, self._share_of(pool.batch, live, ready))
            needed = min(needed, self._most_of(now, live, pool, more))
            priority, rank = (more.priority, more.rank) if more else (_priority(live, pool), 0)
            demands.append(Demand(pool, priority, rank, needed))
        limits = {
            demand.pool.batch: self._share_of(demand.pool.batch, live, ready) for demand in demands
        }
        self.batches = tuple(limits)
        return self.agents.limited(demands, limits)

    def _most_of(self, now: int, live: LiveWorkers, pool: Pool, more: Ready | None) -> int:
        """The limit of the batch, or the learner's choice if its strategy is adaptive."""
        limit, spec = self._limit_of(pool.batch), self.specs.spec(pool.batch)
        if not self.adaptive.is_adaptive(spec):
            return limit
        running = (
            live.running[w.worker.id].type for w in live.of(pool) if w.worker.id in live.running
        )
        types = more.types if more else tuple(running)[:1]
        is_set = pool.agent or self.specs.requested_workers(pool.batch) is not None
        return self.adaptive.most(
            now, pool, spec, types, limit=limit, first=0 if is_set else self.cores
        )

    def _share_of(self, batch: str, live: LiveWorkers, ready: ReadyByPool) -> int:
        """The workers of a batch that this host may have: all, unless hosts share the store."""
        spec, limit = self.specs.spec(batch), self._limit_of(batch)
        if self.fleet is None:
            return limit if spec.per_host is None else min(limit, spec.per_host)
        total = 1 if spec.strategy == "sequential" else self.specs.requested_workers(batch)
        work = sum(attempt.batch == batch for attempt in live.running.values())
        work += sum(more.tasks for pool, more in ready.items() if pool.batch == batch)
        return min(limit, self.fleet.share(batch, spec, total, limit, work))

    def _limit_of(self, batch: str) -> int:
        spec = self.specs.spec(batch)
        if spec.strategy == "sequential":
            return 1
        requested = self.specs.requested_workers(batch)
        usual = AGENTS_PER_HOST if spec.agent else self.cores
        if self.adaptive.is_adaptive(spec) and not spec.agent:
            usual *= PER_CORE
        elif self._may_go_beyond_cores(batch):
            usual = self.headroom.limit
        return (self.hv.settings.workers or usual) if requested is None else requested

    def _may_go_beyond_cores(self, batch: str) -> bool:
        """Whether nobody has said how many workers a batch of commands or functions gets."""
        spec = self.specs.spec(batch)
        is_open = self.hv.settings.workers is None and self.specs.requested_workers(batch) is None
        return is_open and spec.strategy == "auto" and not spec.agent

    def _host_limit(self, live: LiveWorkers, demands: list[Demand]) -> int:
        """Agents have their own limit: most of the time they wait for their provider."""
        scaled = self.specs.scaled_workers(None)
        if scaled is not None:
            return scaled
        agents = {demand.pool.batch for demand in demands if demand.pool.agent}
        others = {demand.pool.batch for demand in demands if not demand.pool.agent}
        host, requested = self.hv.settings.workers, self.specs.requested_workers
        most_agents = max([AGENTS_PER_HOST, *(requested(batch) or 0 for batch in agents)])
        most = max([host or self.cores, *(self._limit_of(batch) for batch in others)])
        if not agents:
            return most
        if host is not None:
            return max(host, *(requested(batch) or 0 for batch in agents | others))
        return most_agents + (most if others else 0) + self._still_leaving(live)

    def _still_leaving(self, live: LiveWorkers) -> int:
        """Leaving agents of an account that is being probed: they must not take the place of the
        agent that probes."""
        return sum(
            worker.worker.id in self.workers.leaving and self.agents.is_probed(pool_of(worker))
            for worker in live.workers
            if worker.agent
        )

    # Capacity of the host

    def decide(
        self, now: int, live: LiveWorkers, demands: list[Demand], ready: ReadyByPool
    ) -> Decision:
        """How many workers the governor allows."""
        pids = [worker.worker.pid for worker in live.workers]
        memory = self.hv.launcher.memory(pids)
        attempts = [self._attempt(live, worker, memory, ready) for worker in live.workers]
        self.governor.strategy = self._strategy(demands)
        self.governor.tick(now, pids, attempts)
        self._measure_headroom(now, live, ready)
        requested = sum(demand.workers for demand in demands) + self._still_leaving(live)
        limit = max(self._host_limit(live, demands), 1)
        first = next(iter(ready), None)
        expected = self._expected(first, ready[first].types) if first else 0
        decision = self.governor.decide(now, requested, limit, attempts, expected)
        self.adaptive.note(now, requested, decision.target)
        return decision

    def _measure_headroom(self, now: int, live: LiveWorkers, ready: ReadyByPool) -> None:
        busy = sum(
            worker.worker.id in live.running and self._may_go_beyond_cores(pool_of(worker).batch)
            for worker in live.workers
        )
        more = any(self._may_go_beyond_cores(pool.batch) for pool in ready)
        self.headroom.tick(now, self.governor.latest, busy, more)

    def _strategy(self, demands: list[Demand]) -> str:
        strategies = {self.specs.spec(demand.pool.batch).strategy for demand in demands}
        if strategies == {"parallel"}:
            return "parallel"
        usual = self.hv.settings.strategy
        return "auto" if usual == "adaptive" else usual

    def _attempt(
        self, live: LiveWorkers, at_work: ActiveWorker, memory: dict[int, int], ready: ReadyByPool
    ) -> RunningAttempt:
        """What a worker is running, or is about to run if it can claim something."""
        worker, used = at_work.worker, memory.get(at_work.worker.pid, 0)
        pool, running = pool_of(at_work), live.running.get(worker.id)
        if running is not None:
            footprint = Footprint(self._expected(pool, (running.type,)), used)
            return RunningAttempt(worker.id, running.priority, running.claimed_at, footprint)
        expected = self._expected(pool, ready[pool].types) if pool in ready else used
        footprint = Footprint(expected, used)
        return RunningAttempt(worker.id, "medium", at_work.started_at, footprint)

    def _expected(self, pool: Pool, types: tuple[str, ...]) -> int | None:
        """The memory that an attempt may need: its limit, else the learned peak."""
        if pool.agent:
            return self.agents.expected(pool)
        declared = self.specs.spec(pool.batch).limits.memory
        if declared is not None:
            return declared
        peaks = [self.specs.memory_peak(task_type) for task_type in types]
        known_peaks = [peak for peak in peaks if peak is not None]
        return max(known_peaks) if len(known_peaks) == len(types) and known_peaks else None

    # Starting and stopping

    def stop_attempts(self, now: int, live: LiveWorkers, decision: Decision) -> None:
        """In an emergency: stop attempts now and release their tasks."""
        for worker_id in decision.stop:
            worker = next(
                live_worker.worker
                for live_worker in live.workers
                if live_worker.worker.id == worker_id
            )
            running = live.running.get(worker_id)
            if running is not None and decision.alone:
                self.hv.store.write(
                    stops_sql.ask_stop, running.task, "fail", decision.sentence, ACTOR, now=now
                )
            else:
                self.workers.signal(worker, "stop")

    def start_and_drain(
        self, now: int, live: LiveWorkers, demands: list[Demand], target: int
    ) -> None:
        """Start workers where a pool has too few, drain them where it has too many. New workers
        start only after leaving ones have exited."""
        target = min(target, self._host_limit(live, demands))
        room = target - len(live.workers) - len(self.workers.starting)
        starting = self.workers.starting_by_pool()
        for pool, count in assign_workers(demands, target).items():
            here = self.workers.staying(live, pool)
            for _ in range(min(count - len(here) - starting[pool], room)):
                if pool.agent and not self.agents.may_start():
                    break
                self.workers.start(pool, now)
                room -= 1
            # Idle workers first: they exit at once.
            by_loss = sorted(here, key=lambda w: (w.worker.id in live.running, -w.started_at))
            for worker in by_loss[: max(len(here) - count, 0)]:
                self.workers.signal(worker.worker, "drain")


def _fleet(hv: Context) -> Fleet | None:
    if not hv.store.is_shared:
        return None
    from hypervisor.runs.fleet import Fleet

    return Fleet(hv)


def _priority(live: LiveWorkers, pool: Pool) -> str:
    of_batch = (
        attempt.priority for attempt in live.running.values() if attempt.batch == pool.batch
    )
    return next(of_batch, "medium")
