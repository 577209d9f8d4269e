"""The supervisor: keeps the right number of workers alive on this host.

One per host and store. It holds nothing that another needs: workers go on
without it, and the next one finds them in the store. Each tick is a list of
steps; which pool (a batch, or one agent of it) gets how many workers is decided
anew every time.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from hypervisor.agents.pools import AGENTS_PER_HOST, AgentPools
from hypervisor.batches.chunk_reporter import ChunkReporter
from hypervisor.core.errors import InvalidInput, StoreError
from hypervisor.learning.learner import Learner
from hypervisor.notifications.notifier import Notifier
from hypervisor.queue.rescue import reap_worker, sweep
from hypervisor.queue.sql import claims, event_log, queries, readiness
from hypervisor.resources.admission import Footprint
from hypervisor.resources.governor import Decision, RunningAttempt
from hypervisor.resources.staffing import Demand, Pool, staffed
from hypervisor.runs import sql
from hypervisor.runs.adaptive_pools import PER_CORE, AdaptivePools
from hypervisor.runs.spec import (
    BATCH,
    LEAST_ROOM,
    AtWork,
    Pause,
    Ready,
    RunSpec,
    no_room_text,
    spec_from,
)
from hypervisor.store import settings

if TYPE_CHECKING:
    from hypervisor.queue.context import Context
    from hypervisor.queue.lease import Holder
    from hypervisor.resources.governor import Governor
    from hypervisor.runs.spec import Running

SWEEP_MS = 1000
STARTING_MS = 10_000
MOST_FALSE_STARTS = 3
MOST_SEEN = 10_000
FAR_AHEAD = 24 * 3600 * 1000
ACTOR = "supervisor"


class Crew(NamedTuple):
    """The workers that live, and what each is running, if anything."""

    workers: tuple[AtWork, ...]
    running: dict[str, Running]

    def of(self, pool: Pool) -> list[AtWork]:
        return [each for each in self.workers if _pool(each) == pool]

    def pools(self) -> dict[Pool, set[str]]:
        """The ids of the workers of each pool."""
        found: dict[Pool, set[str]] = {}
        for each in self.workers:
            found.setdefault(_pool(each), set()).add(each.worker.id)
        return found


class Supervisor:
    def __init__(self, hv: Context, governor: Governor, cores: int, idle_ms: int | None) -> None:
        """`idle_ms`: end after so long with nothing to do; None stays for ever."""
        self.hv, self.governor, self.cores, self.idle_ms = hv, governor, cores, idle_ms
        self.starting: dict[int, tuple[Pool, int]] = {}
        self.leaving: set[str] = set()
        self.false_starts: Counter[Pool] = Counter()
        self.chronicler = ChunkReporter(hv)
        self.notifier = Notifier(hv)
        self.learner = Learner(hv, cores)
        self.adaptive = AdaptivePools(hv, self.learner)
        self.specs: dict[str, RunSpec] = {}  # and settings: as they are in this tick
        self.settings: dict[str, str | None] = {}
        self.agents = AgentPools(hv, self._spec)
        self.swept_at = 0
        self.full_since: int | None = None  # the disk; nothing is started then
        self.busy_at: int | None = None
        self.is_waiting = True  # for work: nobody is there who could be doing any

    def tick(self, now: int, asked: str = "") -> bool:
        """Look around and do what is needed. False when there is no reason to stay."""
        self._forget()
        self._look_at_disk(now)
        self.agents.begin(now)
        self._note_ended(now)
        self._sweep(now)
        self.notifier.tick(now)
        self.learner.tick(now)
        crew = self._muster(now)
        if asked:
            return self._wind_up(now, crew, asked)
        ready = self._ready()
        demands = self._demands(now, crew, ready)
        decision = self._decide(now, crew, demands, ready)
        self._carry_out(now, crew, decision)
        if self.full_since is None:
            self._staff(now, crew, demands, min(decision.target, self._host_limit(crew, demands)))
        self.agents.watch(crew.pools(), self.leaving, ready)
        self.chronicler.tick(now, dict.fromkeys(demand.pool.batch for demand in demands))
        return self._has_reason_to_stay(now, crew, ready)

    # Seeing

    def _look_at_disk(self, now: int) -> None:
        if self.hv.outputs.room() < LEAST_ROOM:
            self.disk_is_full(now)
        elif self.full_since is not None:
            seconds = (now - self.full_since) // 1000
            said = f"no space left on the disk for {seconds} s; there is room again"
            self.hv.store.write_unsynced(event_log.note, "trouble", {"said": said}, ACTOR, now)
            self.full_since = None  # last: a disk that takes no event has no room

    def disk_is_full(self, now: int) -> None:
        """Say so where that needs no room; in the store as well if it can still take it."""
        if self.full_since is None:
            self.full_since = now
            with suppress(StoreError):
                self.hv.store.write_unsynced(
                    event_log.note, "trouble", {"said": self._trouble()}, ACTOR, now
                )
        self.hv.launcher.tell(self._word(now, Crew((), {}), self._trouble(), 0))

    def _trouble(self) -> str:
        return "" if self.full_since is None else no_room_text(self.hv.store.where)

    def _note_ended(self, now: int) -> None:
        """A worker that ends by itself with an error could not even begin."""
        for pid, code in self.hv.launcher.reap():
            pool, _ = self.starting.pop(pid, (None, 0))
            self.swept_at = 0
            if pool and code > 0:
                self.false_starts[pool] += 1
                if self.false_starts[pool] >= MOST_FALSE_STARTS:
                    self._give_up(pool)

    def _sweep(self, now: int) -> None:
        if not 0 <= now - self.swept_at < SWEEP_MS:
            self.swept_at = now
            from hypervisor.batches.reduce import release_reduces  # not before it has the lock

            sweep(self.hv, now)
            release_reduces(self.hv)

    def _muster(self, now: int) -> Crew:
        found = self.hv.store.read(sql.at_work, self.hv.probe.boot())
        gone = [each for each in found if self.hv.probe.is_gone(each.worker)]
        for each in gone:
            reap_worker(self.hv, each.worker, self._held_by(each.worker.id, now), now)
            self.hv.store.write_unsynced(sql.retire, each.worker.id, now)
        alive = [each for each in found if each not in gone]
        self.leaving &= {each.worker.id for each in alive}
        for each in alive:
            if self.starting.pop(each.worker.pid, None):
                self.false_starts[_pool(each)] = 0
        self.starting = {
            pid: begun for pid, begun in self.starting.items() if now - begun[1] < STARTING_MS
        }
        by_worker: dict[str, Running] = {}
        for attempt in self.hv.store.read(sql.running, None, MOST_SEEN):
            by_worker.setdefault(attempt.worker.id, attempt)
        return Crew(tuple(alive), by_worker)

    def _held_by(self, worker: str, now: int) -> list[Holder]:
        """Its journal tells what it had not begun, and is gone once it is buried."""
        boot = self.hv.probe.boot()
        return [
            held
            for held in self.hv.store.read(claims.holders, boot, now)
            if held.worker.id == worker
        ]

    def _ready(self) -> dict[Pool, Ready]:
        """What each pool could claim, best first."""
        found: dict[Pool, Ready] = {}
        for each in self.hv.store.read(sql.ready, None):
            for name in self.agents.agents_of(each.batch):
                pool = Pool(each.batch, name)
                if self.agents.serves(pool) and {*each.requires} <= self.agents.capabilities(pool):
                    found[pool] = found[pool].joined(each) if pool in found else each
        return found

    # Deciding

    def _demands(self, now: int, crew: Crew, ready: dict[Pool, Ready]) -> list[Demand]:
        """What each pool could use: one for each running and each ready task, of which those
        who come to life or rest take their share, and nobody is sent away for want of work."""
        demands = []
        starting = Counter(pool for pool, _ in self.starting.values())
        for pool in dict.fromkeys([*ready, *crew.pools(), *starting]):
            staying = self._staying(crew, pool)
            busy = sum(each.worker.id in crew.running for each in staying)
            more = ready.get(pool)
            wanted = max(len(staying) + starting[pool], busy + (more.tasks if more else 0))
            wanted = min(wanted, self._most_of(now, crew, pool, more))
            priority, rank = (more.priority, more.rank) if more else (self._priority(crew, pool), 0)
            demands.append(Demand(pool, priority, rank, wanted))
        limits = {demand.pool.batch: self._limit_of(demand.pool.batch) for demand in demands}
        return self.agents.limited(demands, limits)

    def _most_of(self, now: int, crew: Crew, pool: Pool, more: Ready | None) -> int:
        """The limit of the batch; where its strategy is adaptive, what the learner makes of it."""
        limit, spec = self._limit_of(pool.batch), self._spec(pool.batch)
        if not self.adaptive.is_adaptive(spec):
            return limit
        running = (
            crew.running[w.worker.id].type for w in crew.of(pool) if w.worker.id in crew.running
        )
        types = more.types if more else tuple(running)[:1]
        first = 0 if pool.agent or self._wished(pool.batch) is not None else self.cores
        return self.adaptive.most(now, pool, spec, types, limit=limit, first=first)

    def _decide(
        self, now: int, crew: Crew, demands: list[Demand], ready: dict[Pool, Ready]
    ) -> Decision:
        memory = self.hv.launcher.memory([each.worker.pid for each in crew.workers])
        attempts = [self._attempt(crew, each, memory, ready) for each in crew.workers]
        pids = [each.worker.pid for each in crew.workers]
        plans = {self._spec(demand.pool.batch).strategy for demand in demands}
        usual = "auto" if self.hv.settings.strategy == "adaptive" else self.hv.settings.strategy
        self.governor.strategy = "parallel" if plans == {"parallel"} else usual
        agents = bool(demands) and all(demand.pool.agent for demand in demands)
        self.governor.tick(now, pids, count_own=agents, running=attempts)
        asked = sum(demand.workers for demand in demands) + self._still_leaving(crew)
        first = next(iter(ready), None)
        expected = self._expected(first, ready[first].types) if first else 0
        decision = self.governor.decide(
            now, asked, max(self._host_limit(crew, demands), 1), attempts, expected
        )
        self.adaptive.note(now, asked, decision.target)
        self._tell(now, decision, crew)
        return decision

    def _attempt(
        self, crew: Crew, at_work: AtWork, memory: dict[int, int], ready: dict[Pool, Ready]
    ) -> RunningAttempt:
        """What a worker runs, or is about to run if there is something to claim."""
        worker, used = at_work.worker, memory.get(at_work.worker.pid, 0)
        running = crew.running.get(worker.id)
        if running is not None:
            footprint = Footprint(self._expected(_pool(at_work), (running.type,)), used)
            return RunningAttempt(worker.id, running.priority, running.claimed_at, footprint)
        pool = _pool(at_work)
        expected = self._expected(pool, ready[pool].types) if pool in ready else used
        footprint = Footprint(expected, used)
        return RunningAttempt(worker.id, "medium", at_work.started_at, footprint)

    def _expected(self, pool: Pool, types: tuple[str, ...]) -> int | None:
        """The memory that an attempt may need: what was declared, else what was learned."""
        if pool.agent:
            return self.agents.expected(pool)
        declared = self._spec(pool.batch).memory
        if declared is not None:
            return declared
        learned = [self._setting(f"peak {kind}") for kind in types]
        known = [int(text) for text in learned if text is not None]
        return max(known) if len(known) == len(types) and known else None

    def _host_limit(self, crew: Crew, demands: list[Demand]) -> int:
        """Agents have a limit of their own: they wait for their provider most of the time."""
        given = self._setting("workers")
        if given is not None:
            return int(given)
        agents = {d.pool.batch for d in demands if d.pool.agent}
        others = {d.pool.batch for d in demands if not d.pool.agent}
        host = self.hv.settings.workers
        most_agents = max([AGENTS_PER_HOST, *(self._wished(batch) or 0 for batch in agents)])
        most = max([host or self.cores, *(self._limit_of(batch) for batch in others)])
        if not agents:
            return most
        if host is not None:
            return max(host, *(self._wished(batch) or 0 for batch in agents | others))
        return most_agents + (most if others else 0) + self._still_leaving(crew)

    def _limit_of(self, batch: str) -> int:
        spec = self._spec(batch)
        if spec.strategy == "sequential":
            return 1
        wished = self._wished(batch)
        usual = AGENTS_PER_HOST if spec.agent else self.cores
        if self.adaptive.is_adaptive(spec) and not spec.agent:
            usual *= PER_CORE
        return (self.hv.settings.workers or usual) if wished is None else wished

    def _still_leaving(self, crew: Crew) -> int:
        """Agents that met no limit work on while their account is tried again: they must not
        keep the one that tries from starting."""
        return sum(
            each.worker.id in self.leaving and self.agents.is_probed(_pool(each))
            for each in crew.workers
            if each.agent
        )

    def _wished(self, batch: str) -> int | None:
        """How many workers were asked for, lately or when the batch was declared."""
        given = self._setting(f"workers {batch}")
        return self._spec(batch).workers if given is None else int(given)

    def _priority(self, crew: Crew, pool: Pool) -> str:
        of_batch = (a.priority for a in crew.running.values() if a.batch == pool.batch)
        return next(of_batch, "medium")

    def _forget(self) -> None:
        """Somebody may change what was looked up in the tick before."""
        self.specs.clear()
        self.settings.clear()

    def _setting(self, name: str) -> str | None:
        if name not in self.settings:
            self.settings[name] = self.hv.store.read(settings.setting, name)
        return self.settings[name]

    def _spec(self, batch: str) -> RunSpec:
        if batch not in self.specs:
            try:
                self.specs[batch] = spec_from(self.hv.store.read(queries.batch, batch).spec)
            except InvalidInput as error:  # one batch of another version must not stop the others
                self.hv.store.write(
                    sql.pause, Pause(BATCH, batch, str(error), ACTOR, 0), self.hv.now()
                )
                self.specs[batch] = RunSpec(cwd="", workers=0)
        return self.specs[batch]

    # Acting

    def _carry_out(self, now: int, crew: Crew, decision: Decision) -> None:
        """An emergency: end attempts now and put their tasks back unpunished."""
        for worker_id in decision.stop:
            worker = next(each.worker for each in crew.workers if each.worker.id == worker_id)
            running = crew.running.get(worker_id)
            if running is not None and decision.alone:
                self.hv.store.write(
                    sql.ask_stop, running.task, "fail", decision.sentence, ACTOR, now
                )
            else:
                self.leaving.add(worker_id)
                self.hv.launcher.ask(worker, "stop")

    def _staff(self, now: int, crew: Crew, demands: list[Demand], target: int) -> None:
        """As many as each pool is given; nobody is started before those who leave have left."""
        room = target - len(crew.workers) - len(self.starting)
        for pool, count in staffed(demands, target).items():
            here = self._staying(crew, pool)
            starting = sum(begun == pool for begun, _ in self.starting.values())
            for _ in range(min(count - len(here) - starting, room)):
                if pool.agent and not self.agents.may_start():
                    break
                self.starting[self._start(pool)] = (pool, now)
                room -= 1
            # One that only rests makes room at once; one at work, when its task has ended.
            by_loss = sorted(here, key=lambda w: (w.worker.id in crew.running, -w.started_at))
            for each in by_loss[: max(len(here) - count, 0)]:
                self.leaving.add(each.worker.id)
                self.hv.launcher.ask(each.worker, "drain")

    def _start(self, pool: Pool) -> int:
        if pool.agent:
            return self.hv.launcher.start_worker(pool.batch, pool.agent)
        return self.hv.launcher.start_worker(pool.batch)

    def _staying(self, crew: Crew, pool: Pool) -> list[AtWork]:
        return [each for each in crew.of(pool) if each.worker.id not in self.leaving]

    def _wind_up(self, now: int, crew: Crew, asked: str) -> bool:
        """We were told to end: so are the workers, and then we go."""
        said = f"nothing new is started: the supervisor was asked to {asked}"
        self.hv.launcher.tell({**self._word(now, crew, said, 0), "asked": asked})
        for each in crew.workers:
            if asked == "stop" or each.worker.id not in self.leaving:
                self.leaving.add(each.worker.id)
                self.hv.launcher.ask(each.worker, asked)
        return bool(crew.workers or self.starting)

    def _give_up(self, pool: Pool) -> None:
        """A batch whose workers cannot start would be tried for ever."""
        self.false_starts[pool] = 0
        why = "its workers could not start; supervisor.log beside the store says why"
        self.hv.store.write(sql.pause, Pause(BATCH, pool.batch, why, ACTOR, 0), self.hv.now())

    def _tell(self, now: int, decision: Decision, crew: Crew) -> None:
        if self.full_since is None:
            word = self._word(now, crew, decision.sentence, decision.target)
        else:
            word = self._word(now, crew, self._trouble(), 0)
        self.hv.launcher.tell(word)
        if decision.news:
            self.hv.store.write_unsynced(event_log.note, "governor", word, ACTOR, now)

    def _word(self, now: int, crew: Crew, said: str, target: int) -> dict[str, Any]:
        """What others may know of this host."""
        zone, load = self.governor.reading.zone, self.governor.reading.load
        return {
            "at": now,
            "zone": zone,
            "cpu": round(load.cpu, 3),
            "own": round(load.own, 3),
            "ram": round(load.ram, 3),
            "said": said,
            "target": target,
            "workers": len(crew.workers),
            **({} if self.full_since is None else {"trouble": self._trouble()}),
        }

    def _has_reason_to_stay(self, now: int, crew: Crew, ready: dict[Pool, Ready]) -> bool:
        """Work, somebody at it, or a task or an account whose time comes within the day."""
        resting = self.agents.resting(ready)
        free = any(self.agents.rest(pool) is None for pool in ready)
        if resting and not (crew.workers or self.starting or free):
            self.agents.tell(resting)
        self.is_waiting = not (crew.workers or self.starting or (resting and not free))
        if self.busy_at is None or crew.workers or self.starting or self._has_work(now, ready):
            self.busy_at = now
        return self.idle_ms is None or now - self.busy_at < self.idle_ms

    def _has_work(self, now: int, ready: dict[Pool, Ready]) -> bool:
        free = any(self.agents.rest(pool) is None for pool in ready)
        soon = any(brake.until < now + FAR_AHEAD for brake in self.agents.resting(ready))
        return free or soon or bool(self.hv.store.read(readiness.any_due, now + FAR_AHEAD))

    def is_needed(self, now: int) -> bool:
        """Whether there is work after all, asked when it is about to leave."""
        self._forget()
        self.agents.begin(now)
        return self._has_work(now, self._ready())


def _pool(at_work: AtWork) -> Pool:
    return Pool(at_work.batch, at_work.agent)
