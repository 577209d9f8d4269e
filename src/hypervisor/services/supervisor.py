"""The supervisor: keeps the right number of workers alive on this host.

One per host and store. It holds nothing that another needs: workers go on
without it, and the next one finds them in the store. Each tick is a list of
steps; which batch gets how many workers is decided anew every time.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from hypervisor.domain.admission import Footprint
from hypervisor.domain.errors import InvalidInput
from hypervisor.domain.run import BATCH, AtWork, Pause, Ready, RunSpec, spec_from
from hypervisor.domain.staffing import Demand, staffed
from hypervisor.operations.sweep import bury, sweep
from hypervisor.services.chronicler import Chronicler
from hypervisor.services.governor import Decision, RunningAttempt

if TYPE_CHECKING:
    from hypervisor.domain.lease import Holder
    from hypervisor.domain.run import Running
    from hypervisor.operations.context import Context
    from hypervisor.services.governor import Governor

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

    def of(self, batch: str) -> list[AtWork]:
        return [each for each in self.workers if each.batch == batch]


class Supervisor:
    def __init__(self, hv: Context, governor: Governor, cores: int, idle_ms: int | None) -> None:
        """`idle_ms`: end after so long with nothing to do; None stays for ever."""
        self.hv, self.governor, self.cores, self.idle_ms = hv, governor, cores, idle_ms
        self.starting: dict[int, tuple[str, int]] = {}
        self.leaving: set[str] = set()
        self.false_starts: Counter[str] = Counter()
        self.chronicler = Chronicler(hv)
        self.specs: dict[str, RunSpec] = {}
        self.swept_at = 0
        self.busy_at: int | None = None
        self.is_waiting = True  # for work: nobody is there who could be doing any

    def tick(self, now: int, asked: str = "") -> bool:
        """Look around and do what is needed. False when there is no reason to stay."""
        self.specs.clear()
        self._note_ended(now)
        self._sweep(now)
        crew = self._muster(now)
        if asked:
            return self._wind_up(crew, asked)
        ready = self.hv.store.ready(self.hv.settings.capabilities)
        demands = self._demands(crew, ready)
        decision = self._decide(now, crew, demands, ready)
        self._carry_out(now, crew, decision)
        self._staff(now, crew, demands, min(decision.target, self._host_limit(demands)))
        self.chronicler.tick(now, (demand.batch for demand in demands))
        return self._has_reason_to_stay(now, crew, ready)

    # Seeing

    def _note_ended(self, now: int) -> None:
        """A worker that ends by itself with an error could not even begin."""
        for pid, code in self.hv.launcher.reap():
            batch, _ = self.starting.pop(pid, ("", 0))
            self.swept_at = 0
            if batch and code > 0:
                self.false_starts[batch] += 1
                if self.false_starts[batch] >= MOST_FALSE_STARTS:
                    self._give_up(batch)

    def _sweep(self, now: int) -> None:
        if not 0 <= now - self.swept_at < SWEEP_MS:
            self.swept_at = now
            sweep(self.hv, now)

    def _muster(self, now: int) -> Crew:
        found = self.hv.store.at_work(self.hv.probe.boot())
        gone = [each for each in found if self.hv.probe.is_gone(each.worker)]
        for each in gone:
            bury(self.hv, each.worker, self._held_by(each.worker.id, now), now)
            self.hv.store.retire(each.worker.id, now)
        alive = [each for each in found if each not in gone]
        self.leaving &= {each.worker.id for each in alive}
        for each in alive:
            if self.starting.pop(each.worker.pid, None):
                self.false_starts[each.batch] = 0
        self.starting = {
            pid: begun for pid, begun in self.starting.items() if now - begun[1] < STARTING_MS
        }
        by_worker: dict[str, Running] = {}
        for attempt in self.hv.store.running(None, MOST_SEEN):
            by_worker.setdefault(attempt.worker.id, attempt)
        return Crew(tuple(alive), by_worker)

    def _held_by(self, worker: str, now: int) -> list[Holder]:
        """Its journal tells what it had not begun, and is gone once it is buried."""
        boot = self.hv.probe.boot()
        return [held for held in self.hv.store.holders(boot, now) if held.worker.id == worker]

    # Deciding

    def _demands(self, crew: Crew, ready: list[Ready]) -> list[Demand]:
        """What each batch could use: one for each running and each ready task, of which those
        who come to life or rest take their share, and nobody is sent away for want of work."""
        demands = []
        waiting = {each.batch: each for each in ready}
        starting = Counter(batch for batch, _ in self.starting.values())
        for batch in dict.fromkeys([*waiting, *(each.batch for each in crew.workers), *starting]):
            staying = self._staying(crew, batch)
            busy = sum(each.worker.id in crew.running for each in staying)
            more = waiting.get(batch)
            wanted = max(len(staying) + starting[batch], busy + (more.tasks if more else 0))
            wanted = min(wanted, self._limit_of(batch))
            priority, rank = (
                (more.priority, more.rank) if more else (self._priority(crew, batch), 0)
            )
            demands.append(Demand(batch, priority, rank, wanted))
        return demands

    def _decide(self, now: int, crew: Crew, demands: list[Demand], ready: list[Ready]) -> Decision:
        memory = self.hv.launcher.memory([each.worker.pid for each in crew.workers])
        types = {each.batch: each.types for each in ready}
        attempts = [self._attempt(crew, each, memory, types) for each in crew.workers]
        pids = [each.worker.pid for each in crew.workers]
        plans = {self._spec(demand.batch).strategy for demand in demands}
        self.governor.strategy = "parallel" if plans == {"parallel"} else self.hv.settings.strategy
        self.governor.tick(now, pids, count_own=False, running=attempts)
        asked = sum(demand.workers for demand in demands)
        expected = self._expected(ready[0].batch, ready[0].types) if ready else 0
        decision = self.governor.decide(
            now, asked, max(self._host_limit(demands), 1), attempts, expected
        )
        self._tell(now, decision, crew)
        return decision

    def _attempt(
        self, crew: Crew, at_work: AtWork, memory: dict[int, int],
        types: dict[str, tuple[str, ...]],
    ) -> RunningAttempt:  # fmt: skip
        """What a worker runs, or is about to run if there is something to claim."""
        worker, used = at_work.worker, memory.get(at_work.worker.pid, 0)
        running = crew.running.get(worker.id)
        if running is not None:
            footprint = Footprint(self._expected(running.batch, (running.type,)), used)
            return RunningAttempt(worker.id, running.priority, running.claimed_at, footprint)
        soon = types.get(at_work.batch)
        footprint = Footprint(self._expected(at_work.batch, soon) if soon else used, used)
        return RunningAttempt(worker.id, "medium", at_work.started_at, footprint)

    def _expected(self, batch: str, types: tuple[str, ...]) -> int | None:
        """The memory that an attempt may need: what was declared, else what was learned."""
        declared = self._spec(batch).memory
        if declared is not None:
            return declared
        learned = [self.hv.store.setting(f"peak {kind}") for kind in types]
        known = [int(text) for text in learned if text is not None]
        return max(known) if len(known) == len(types) and known else None

    def _host_limit(self, demands: list[Demand]) -> int:
        given = self.hv.store.setting("workers")
        if given is not None:
            return int(given)
        wished = [self._wished(demand.batch) or 0 for demand in demands]
        return max([self.hv.settings.workers or self.cores, *wished])

    def _limit_of(self, batch: str) -> int:
        if self._spec(batch).strategy == "sequential":
            return 1
        wished = self._wished(batch)
        return (self.hv.settings.workers or self.cores) if wished is None else wished

    def _wished(self, batch: str) -> int | None:
        """How many workers were asked for, lately or when the batch was declared."""
        given = self.hv.store.setting(f"workers {batch}")
        return self._spec(batch).workers if given is None else int(given)

    def _priority(self, crew: Crew, batch: str) -> str:
        of_batch = (a.priority for a in crew.running.values() if a.batch == batch)
        return next(of_batch, "medium")

    def _spec(self, batch: str) -> RunSpec:
        if batch not in self.specs:
            try:
                self.specs[batch] = spec_from(self.hv.store.batch(batch).spec)
            except InvalidInput as error:  # one batch of another version must not stop the others
                self.hv.store.pause(Pause(BATCH, batch, str(error), ACTOR, 0))
                self.specs[batch] = RunSpec(cwd="", workers=0)
        return self.specs[batch]

    # Acting

    def _carry_out(self, now: int, crew: Crew, decision: Decision) -> None:
        """An emergency: end attempts now and put their tasks back unpunished."""
        for worker_id in decision.stop:
            worker = next(each.worker for each in crew.workers if each.worker.id == worker_id)
            running = crew.running.get(worker_id)
            if running is not None and decision.alone:
                self.hv.store.ask_stop(running.task, "fail", decision.sentence, ACTOR, now)
            else:
                self.leaving.add(worker_id)
                self.hv.launcher.ask(worker, "stop")

    def _staff(self, now: int, crew: Crew, demands: list[Demand], target: int) -> None:
        """As many as each batch is given; nobody is started before those who leave have left."""
        room = target - len(crew.workers) - len(self.starting)
        for batch, count in staffed(demands, target).items():
            here = self._staying(crew, batch)
            starting = sum(begun == batch for begun, _ in self.starting.values())
            for _ in range(min(count - len(here) - starting, room)):
                self.starting[self.hv.launcher.start_worker(batch)] = (batch, now)
                room -= 1
            youngest_first = sorted(here, key=lambda each: -each.started_at)
            for each in youngest_first[: max(len(here) - count, 0)]:
                self.leaving.add(each.worker.id)
                self.hv.launcher.ask(each.worker, "drain")

    def _staying(self, crew: Crew, batch: str) -> list[AtWork]:
        return [each for each in crew.of(batch) if each.worker.id not in self.leaving]

    def _wind_up(self, crew: Crew, asked: str) -> bool:
        """We were told to end: so are the workers, and then we go."""
        for each in crew.workers:
            if asked == "stop" or each.worker.id not in self.leaving:
                self.leaving.add(each.worker.id)
                self.hv.launcher.ask(each.worker, asked)
        return bool(crew.workers or self.starting)

    def _give_up(self, batch: str) -> None:
        """A batch whose workers cannot start would be tried for ever."""
        self.false_starts[batch] = 0
        why = "its workers could not start; supervisor.log beside the store says why"
        self.hv.store.pause(Pause(BATCH, batch, why, ACTOR, 0))

    def _tell(self, now: int, decision: Decision, crew: Crew) -> None:
        reading = self.governor.reading
        load = reading.load
        word = {
            "at": now, "zone": reading.zone, "cpu": round(load.cpu, 3), "own": round(load.own, 3),
            "ram": round(load.ram, 3), "said": decision.sentence, "target": decision.target,
            "workers": len(crew.workers),
        }  # fmt: skip
        self.hv.launcher.tell(word)
        if decision.news:
            self.hv.store.note("governor", word, ACTOR, now=now)

    def _has_reason_to_stay(self, now: int, crew: Crew, ready: list[Ready]) -> bool:
        """Work, somebody at it, or a task whose time comes within the day."""
        self.is_waiting = not (crew.workers or self.starting)
        busy = crew.workers or self.starting or ready or self.hv.store.due(now + FAR_AHEAD)
        if busy or self.busy_at is None:
            self.busy_at = now
        return self.idle_ms is None or now - self.busy_at < self.idle_ms
