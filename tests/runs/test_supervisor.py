"""The supervisor tick by tick: a real store, and a host where everything happens as told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hypervisor.app import make_supervisor
from hypervisor.queue.context import Context
from hypervisor.queue.lease import AttemptResult, ClaimRequest, Worker, parse_token
from hypervisor.queue.task import NewTask
from hypervisor.resources.governor import Decision, Governor, Reading
from hypervisor.resources.zones import SAFE, Load
from hypervisor.runs.config import Settings
from hypervisor.runs.spec import BATCH, Leftovers, Pause, RunSpec, spec_data
from hypervisor.store.sqlite import SqliteDatabase
from tests.support.benches import closed_after
from tests.support.ledger import Ledger
from tests.support.parts import parts

BOOT = "this boot"
BEGIN = 1_800_000_000_000
TICK = 250
LEASE = 60_000


class Obedient:
    """A governor that lets live as many as asked for, up to `most`, and stops whom it is told."""

    def __init__(self):
        self.most, self.stop, self.alone, self.news = 1_000, (), False, False
        self.strategy = "auto"
        self.reading = Reading(SAFE, 0, Load(0.25, 0.0, 1, 4))
        self.seen: list[Any] = []
        self.counts_own = False

    def tick(self, now, workers, count_own, running=()):
        self.counts_own = count_own
        return self.reading

    def decide(self, now, asked, limit, running, expected=None):
        self.seen.append(SimpleNamespace(asked=asked, limit=limit, running=running, next=expected))
        stop, self.stop = self.stop, ()
        return Decision(min(asked, limit, self.most), stop, "as told", self.news, self.alone)


class Host:
    """Probe, launcher and outputs in one: processes live and die as the test says."""

    def __init__(self, store):
        self.store = store
        self.alive: set[int] = set()
        self.started: list[tuple[int, str]] = []
        self.asked: list[tuple[int, str]] = []
        self.ended: list[tuple[int, int]] = []
        self.left: dict[int, Leftovers] = {}
        self.forgotten: list[int] = []
        self.recovered: list[tuple[str, int] | None] = []
        self.ends = True
        self.scrubbed: list[tuple[int, str, str]] = []
        self.using: dict[int, int] = {}
        self.bytes_left = 1 << 40
        self.words: list[dict[str, Any]] = []
        self.agents: dict[int, str] = {}
        self.keys: dict[str, str] = {}  # by batch

    # What the supervisor asks

    def recover(self, worker, running=None):
        self.recovered.append(running)

    def room(self):
        return self.bytes_left

    def boot(self):
        return BOOT

    def host(self):
        return "host"

    def is_gone(self, worker):
        return None if worker.boot != BOOT else worker.pid not in self.alive

    def start_worker(self, batch, agent=""):
        pid = 100 + len(self.started)
        self.started.append((pid, batch))
        self.agents[pid] = agent
        self.alive.add(pid)
        return pid

    def environment(self, batch):
        return {"KEY": self.keys.get(batch, "")}

    def reap(self):
        ended, self.ended = self.ended, []
        return ended

    def signal(self, worker, what):
        self.asked.append((worker.pid, what))

    def memory(self, workers):
        return {pid: self.using.get(pid, 0) for pid in workers}

    def publish_status(self, word):
        self.words.append(word)

    def remains(self, worker):
        return self.left.get(worker.pid)

    def end_leftovers(self, worker, remains, held):
        return 1 if self.ends else None

    def clean_up_agent(self, worker, session):
        self.scrubbed.append((worker.pid, session.task, session.agent))

    def forget_leftovers(self, worker, remains):
        self.forgotten.append(worker.pid)
        del self.left[worker.pid]

    # What happens to workers

    def arrive(self, now, boot=BOOT):
        """All that were started come to life."""
        known = {each.worker.pid for each in self.store.at_work(BOOT)}
        for pid, batch in self.started:
            if pid in self.alive and pid not in known:
                self.store.register(worker_of(pid), batch, now + pid, self.agents[pid])

    def leave(self, pid):
        """A worker ends as it should."""
        self.store.retire(worker_of(pid).id, BEGIN)
        self._end(pid, 0)

    def die(self, pid, code=-9):
        self._end(pid, code)

    def _end(self, pid, code):
        self.alive.remove(pid)
        self.ended.append((pid, code))


def worker_of(pid, boot=BOOT):
    return Worker(f"w{pid}", f"worker-{pid}", "host", boot, pid, pid * 10)


class Stage:
    """A supervisor on a host, with batches to run and a clock to turn."""

    def __init__(self, path, settings=None, governor=None, cores=4, idle_ms=3000):
        self.store = Ledger(SqliteDatabase(str(path), relaxed=True))
        self.host = Host(self.store)
        self.settings = settings or Settings()
        self.governor = governor or Obedient()
        self.now = BEGIN
        host: Any = self.host
        given = parts(
            launcher=host,
            outputs=host,
            settings=self.settings,
            clean_up_agent=self.host.clean_up_agent,
        )
        self.hv = Context(self.store, host, "tester", parts=given)
        self._cores, self._idle_ms = cores, idle_ms
        self.supervisor = self.another()

    def another(self):
        governor: Any = self.governor
        return make_supervisor(self.hv, self._idle_ms, governor, self._cores)

    def batch(self, name, tasks=1, priority="medium", type="run", **spec):
        batch = self.store.declare(name, spec_data(RunSpec("/", ("true",), **spec)), "t", self.now)
        self.add(name, tasks, priority, type)
        return batch.id

    def add(self, name, tasks, priority="medium", type="run", **more) -> tuple[str, ...]:
        new = [NewTask("t", type=type, priority=priority, **more) for _ in range(tasks)]
        return self.store.add(new, name, "t", self.now).ids

    def tick(self, asked="", after=TICK):
        self.now += after
        return self.supervisor.tick(self.now, asked)

    def settle(self):
        """Ticks until all that were started are there."""
        self.tick()
        self.host.arrive(self.now)
        self.tick()

    def claim(self, pid, count=1):
        return self.store.claim(ClaimRequest(worker_of(pid), count, LEASE), self.now)

    def finish(self, leases):
        verdicts = [AttemptResult(parse_token(lease.token), "complete") for lease in leases]
        self.store.settle(verdicts, self.now)

    def started(self):
        """The batches for which workers were started since the last look."""
        batches = [batch for _, batch in self.host.started[self._looked :]]
        self._looked = len(self.host.started)
        return batches

    _looked = 0

    def outcomes(self):
        return {
            each.id: [a.outcome for a in self.store.detail(each.id).attempts]
            for each in self.store.list_tasks(_everything(), 1000)
        }


def _everything():
    from hypervisor.queue.task import TaskFilter

    return TaskFilter()


@pytest.fixture
def make(tmp_path):
    with closed_after(lambda number, **how: Stage(tmp_path / f"{number}.db", **how)) as maker:
        yield maker


@pytest.fixture
def stage(make):
    return make()


class TestStarting:
    def test_one_for_each_task_up_to_the_cores(self, stage):
        few = stage.batch("few", 3)
        stage.tick()
        assert stage.started() == [few] * 3
        stage.add("few", 5)
        stage.tick()
        assert stage.started() == [few], "four cores, of which three have a worker on its way"

    def test_none_is_started_twice_while_it_comes_to_life(self, stage):
        stage.batch("few", 3)
        for _ in range(5):
            stage.tick()
        assert len(stage.started()) == 3
        stage.host.arrive(stage.now)
        for _ in range(5):
            stage.tick()
        assert stage.started() == []

    def test_one_that_never_comes_to_life_is_replaced(self, stage):
        batch = stage.batch("one", 1)
        stage.tick()
        stage.tick(after=9_000)
        assert stage.started() == [batch]
        stage.tick(after=2_000)
        assert stage.started() == [batch]

    def test_finished_and_dead_ones_are_replaced_while_there_is_work(self, stage):
        batch = stage.batch("many", 50)
        stage.settle()
        stage.started()
        stage.host.leave(100)
        stage.host.die(101)
        stage.tick()
        assert stage.started() == [batch] * 2

    def test_nobody_is_started_for_what_nobody_runs(self, stage):
        stage.store.add([NewTask("by hand")], "plain", "t", stage.now)
        stage.store.add([NewTask("alone")], None, "t", stage.now)
        stage.tick()
        assert stage.started() == []

    def test_nobody_is_started_for_what_this_host_cannot_do(self, make):
        stage = make(settings=Settings(capabilities=("big",)))
        stage.batch("none", 0)
        stage.add("none", 2, requires=("gpu",))
        stage.tick()
        assert stage.started() == []
        stage.add("none", 2, requires=("big",))
        stage.tick()
        assert len(stage.started()) == 2

    @pytest.mark.parametrize("scope", [("all", ""), ("batch", "b"), ("type", "run")])
    def test_nobody_is_started_during_a_pause(self, stage, scope):
        batch = stage.batch("b", 3)
        pause = Pause(scope[0], batch if scope[1] == "b" else scope[1], "", "t", 0)
        with_other_eyes = Ledger(SqliteDatabase(stage.store.where, relaxed=True))
        stage.tick()
        stage.host.arrive(stage.now)
        with_other_eyes.pause(pause, stage.now)
        for pid in (100, 101, 102):
            stage.host.leave(pid)
        stage.started()
        stage.tick()
        assert stage.started() == []
        with_other_eyes.resume(pause, stage.now)
        stage.tick()
        assert stage.started() == [batch] * 3
        with_other_eyes.close()

    def test_limits_of_the_run_the_settings_and_a_person(self, make):
        stage = make(settings=Settings(workers=2))
        stage.batch("b", 50)
        stage.tick()
        assert len(stage.started()) == 2
        stage.batch("b", 0, workers=3)
        stage.tick()
        assert len(stage.started()) == 1
        stage.store.scale(5, stage.store.batch("b").id, "t", stage.now)
        stage.store.scale(5, None, "t", stage.now)
        stage.tick()
        assert len(stage.started()) == 2

    def test_a_sequential_run_gets_one(self, stage):
        stage.batch("b", 50, strategy="sequential", workers=4)
        stage.tick()
        assert len(stage.started()) == 1

    def test_a_parallel_run_tells_the_governor_so(self, stage):
        stage.batch("b", 1, strategy="parallel")
        stage.tick()
        assert stage.governor.strategy == "parallel"
        stage.batch("c", 1)
        stage.tick()
        assert stage.governor.strategy == "auto"

    def test_workers_of_another_supervisor_are_adopted(self, stage):
        stage.batch("b", 50)
        stage.settle()
        stage.started()
        stage.supervisor = stage.another()
        stage.tick()
        assert stage.started() == []
        stage.host.die(103)
        stage.tick()
        assert len(stage.started()) == 1

    def test_workers_of_another_boot_do_not_count(self, stage):
        batch = stage.batch("b", 50)
        for pid in range(4):
            stage.store.register(worker_of(pid, "another boot"), batch, stage.now)
        stage.tick()
        assert len(stage.started()) == 4


class TestDraining:
    def test_the_youngest_is_asked_and_only_once(self, stage):
        batch = stage.batch("b", 50)
        stage.settle()
        stage.store.scale(2, batch, "t", stage.now)
        for _ in range(4):
            stage.tick()
        assert stage.host.asked == [(103, "drain"), (102, "drain")]

    def test_who_only_rests_leaves_before_who_is_at_work(self, stage):
        batch = stage.batch("b", 50)
        stage.settle()
        stage.claim(103)
        stage.store.scale(2, batch, "t", stage.now)
        stage.tick()
        assert stage.host.asked == [(102, "drain"), (101, "drain")]

    def test_to_none_at_all(self, stage):
        stage.batch("b", 50)
        stage.settle()
        stage.store.scale(0, None, "t", stage.now)
        stage.tick()
        assert sorted(stage.host.asked) == [(pid, "drain") for pid in range(100, 104)]
        for pid in range(100, 104):
            stage.host.leave(pid)
        stage.started()
        stage.tick()
        assert stage.started() == []

    def test_those_who_drain_still_live(self, stage):
        """The governor says how many may live: nobody is started in their stead before they go."""
        batch = stage.batch("b", 50)
        stage.settle()
        stage.started()
        stage.store.scale(2, batch, "t", stage.now)
        stage.tick()
        stage.store.scale(4, batch, "t", stage.now)
        stage.tick()
        assert stage.started() == []
        stage.host.leave(103)
        stage.tick()
        assert stage.started() == [batch]

    def test_those_without_work_are_left_to_end_by_themselves(self, stage):
        stage.batch("b", 4)
        stage.settle()
        leases = stage.claim(100, 4)
        stage.finish(leases)
        stage.tick()
        assert stage.host.asked == []

    def test_when_the_governor_lets_fewer_live(self, stage):
        stage.batch("b", 50)
        stage.settle()
        stage.governor.most = 1
        stage.tick()
        assert [what for _, what in stage.host.asked] == ["drain"] * 3
        assert [pid for pid, _ in stage.host.asked] == [103, 102, 101]

    def test_who_left_is_forgotten(self, stage):
        batch = stage.batch("b", 50)
        stage.settle()
        stage.store.scale(0, batch, "t", stage.now)
        stage.tick()
        for pid in range(100, 104):
            stage.host.leave(pid)
        stage.tick()
        assert stage.supervisor.staffing.workers.leaving == set()


class TestBetweenBatches:
    def test_the_more_urgent_first(self, stage):
        low = stage.batch("low", 50, "low")
        high = stage.batch("high", 3, "high")
        stage.tick()
        assert sorted(stage.started()) == sorted([high] * 3 + [low])

    def test_equals_get_one_each_and_then_the_older_gets_the_rest(self, stage):
        old = stage.batch("old", 50)
        stage.now += 10
        new = stage.batch("new", 50)
        stage.tick()
        assert sorted(stage.started()) == sorted([old] * 3 + [new])

    def test_a_more_urgent_one_takes_over_as_others_end(self, stage):
        low = stage.batch("low", 50, "low")
        stage.settle()
        assert stage.started() == [low] * 4
        high = stage.batch("high", 50, "critical")
        stage.tick()
        assert sorted(stage.host.asked) == [(pid, "drain") for pid in range(100, 104)]
        assert stage.started() == [], "four cores are taken until the others end"
        stage.host.leave(101)
        stage.tick()
        assert stage.started() == [high]

    def test_what_runs_counts_with_its_own_urgency(self, stage):
        """A critical batch with all tasks claimed keeps its workers."""
        stage.batch("urgent", 2, "critical")
        stage.settle()
        stage.claim(100)
        stage.claim(101)
        stage.batch("other", 50)
        stage.tick()
        assert stage.host.asked == []

    def test_the_governor_is_asked_for_all_together(self, stage):
        stage.batch("a", 3)
        stage.batch("b", 50, workers=6)
        stage.tick()
        seen = stage.governor.seen[-1]
        assert (seen.asked, seen.limit) == (9, 6)
        assert not stage.governor.counts_own


class TestMemory:
    def test_declared_counts_more_than_learned(self, stage):
        stage.store.set("peak run", "700")
        stage.batch("b", 5)
        stage.tick()
        assert stage.governor.seen[-1].next == 700
        stage.batch("b", 0, memory=900)
        stage.tick()
        assert stage.governor.seen[-1].next == 900

    def test_unknown_unless_every_type_is_known(self, stage):
        stage.store.set("peak run", "700")
        stage.batch("b", 5)
        stage.add("b", 1, type="other")
        stage.tick()
        assert stage.governor.seen[-1].next is None

    def test_each_worker_is_shown_with_what_it_runs(self, stage):
        stage.store.set("peak run", "700")
        stage.batch("b", 1, "high")
        stage.settle()
        stage.claim(100)
        stage.host.using = {100: 300}
        stage.tick()
        (running,) = stage.governor.seen[-1].running
        assert (running.worker, running.priority) == ("w100", "high")
        assert running.footprint == (700, 300)

    def test_five_asked_at_75_cpu_and_80_ram_start_two(self, make):
        probe = SimpleNamespace(read=lambda workers: Load(0.75, 0.0, 80, 100))
        stage = make(cores=5, governor=Governor(probe))
        stage.store.set("peak run", "1")
        batch = stage.batch("b", 5)
        stage.tick()
        assert stage.started() == [batch] * 2
        (event,) = (e for e in stage.store.events(0, 100) if e.kind == "governor")
        assert event.data["said"] == "2 of 5 started: CPU 75 %, RAM 80 % (warning)"


class TestEmergency:
    def test_one_is_stopped_and_nobody_started(self, stage):
        stage.batch("b", 50)
        stage.settle()
        stage.claim(103)
        stage.started()
        stage.governor.stop, stage.governor.most = ("w103",), 1
        stage.tick()
        assert stage.host.asked[0] == (103, "stop")
        assert ("w103", "drain") not in stage.host.asked and stage.started() == []

    def test_the_only_one_fails_for_good(self, stage):
        """It is too big for this host: put back, it would only do it again."""
        stage.batch("b", 1)
        stage.settle()
        (lease,) = stage.claim(100)
        stage.governor.stop, stage.governor.alone = ("w100",), True
        stage.tick()
        assert stage.host.asked == []
        (stop,) = stage.store.stops([lease.task.id])
        assert (stop.next, stop.reason, stop.actor) == ("fail", "as told", "supervisor")

    def test_a_stopped_one_is_not_replaced_by_an_equal_elsewhere(self, stage):
        """Two batches, room for one: whoever lives stays, nobody new is started."""
        stage.batch("old", 50, workers=1)
        stage.now += 10
        stage.batch("new", 50, workers=1)
        stage.settle()
        stage.started()
        stage.governor.stop, stage.governor.most = ("w100",), 1
        stage.tick()
        assert stage.started() == []


class TestFalseStarts:
    def test_three_pause_the_batch_with_a_reason(self, stage):
        batch = stage.batch("b", 1)
        for _ in range(2):
            stage.tick()
            stage.host.die(stage.host.started[-1][0], code=1)
        stage.tick()
        assert stage.store.pauses() == []
        stage.host.die(stage.host.started[-1][0], code=1)
        stage.tick()
        (pause,) = stage.store.pauses()
        assert (pause.scope, pause.name, pause.actor) == (BATCH, batch, "supervisor")
        assert "could not start" in pause.reason
        assert len(stage.started()) == 3
        assert stage.tick() and not stage.tick(after=3000), "nothing is left to do"

    def test_a_start_that_works_wipes_the_slate(self, stage):
        stage.batch("b", 1)
        for _ in range(2):
            stage.tick()
            stage.host.die(stage.host.started[-1][0], code=1)
        stage.settle()
        stage.host.die(102)
        for _ in range(2):
            stage.tick()
            stage.host.die(stage.host.started[-1][0], code=1)
        stage.tick()
        assert stage.store.pauses() == []

    def test_a_killed_one_is_no_false_start(self, stage):
        stage.batch("b", 1)
        for _ in range(5):
            stage.tick()
            stage.host.die(stage.host.started[-1][0], code=-9)
        stage.tick()
        assert stage.store.pauses() == []
        assert len(stage.started()) == 6

    def test_other_batches_go_on(self, stage):
        stage.batch("bad", 1, "high")
        good = stage.batch("good", 1)
        for _ in range(3):
            stage.tick()
            pid = next(p for p, b in reversed(stage.host.started) if b != good)
            stage.host.die(pid, code=1)
        stage.host.arrive(stage.now)
        stage.tick()
        assert [each.batch for each in stage.store.at_work(BOOT)] == [good]


class TestBurying:
    def test_what_had_ended_is_settled_what_ran_crashed_the_rest_is_put_back(self, stage):
        stage.batch("b", 3, workers=1)
        stage.settle()
        ended, ran, waited = stage.claim(100, 3)
        verdict = AttemptResult(parse_token(ended.token), "complete")
        stage.host.left[100] = Leftovers((verdict,), ran.token, (7, 70), None)
        stage.host.die(100)
        stage.tick()
        assert stage.outcomes() == {
            ended.task.id: ["done"],
            ran.task.id: ["crashed"],
            waited.task.id: ["released"],
        }
        assert stage.host.forgotten == [100]
        assert stage.host.recovered == [(ran.task.id, 1)]
        assert len(stage.started()) == 2

    def test_so_it_is_with_an_adopted_one(self, stage):
        """It is not our child: nobody tells of its end, and no sweep is due."""
        stage.batch("b", 3, workers=1)
        stage.settle()
        ran, waited, _ = stage.claim(100, 3)
        stage.host.left[100] = Leftovers((), ran.token, None, None)
        stage.tick(after=1000)
        stage.host.die(100)
        stage.host.ended.clear()
        stage.tick()
        stage.tick(after=1000)
        assert stage.outcomes()[ran.task.id] == ["crashed"]
        assert stage.outcomes()[waited.task.id] == ["released"]
        assert stage.store.task(waited.task.id).crashes == 0

    def test_nothing_is_put_back_while_something_of_it_lives(self, stage):
        stage.batch("b", 1)
        stage.settle()
        (lease,) = stage.claim(100)
        stage.host.left[100] = Leftovers((), lease.token, (7, 70), None)
        stage.host.ends = False
        stage.host.die(100)
        for _ in range(8):
            stage.tick()
        assert stage.store.task(lease.task.id).state == "in_progress"
        assert stage.host.forgotten == [] and len(stage.started()) == 1
        stage.host.ends = True
        stage.tick(after=1000)
        assert stage.outcomes() == {lease.task.id: ["crashed"]}
        assert stage.host.forgotten == [100]

    def test_the_cancelled_is_not_run_again(self, stage):
        stage.batch("b", 1)
        stage.settle()
        (lease,) = stage.claim(100)
        assert stage.store.ask_stop(lease.task.id, "cancel", "not needed", "t", stage.now)
        stage.host.left[100] = Leftovers((), lease.token, None, None)
        stage.host.die(100)
        stage.tick()
        assert stage.store.task(lease.task.id).state == "cancelled"


class TestEnd:
    def test_after_a_while_without_work(self, stage):
        assert stage.tick()
        assert stage.tick(after=2999)
        assert not stage.tick(after=1)

    def test_it_says_whether_work_came_after_all(self, stage):
        stage.tick()
        assert not stage.tick(after=3000)
        assert not stage.supervisor.is_needed(stage.now)
        stage.batch("b", 1)
        assert stage.supervisor.is_needed(stage.now)

    def test_work_starts_the_while_anew(self, stage):
        stage.batch("b", 1)
        stage.settle()
        stage.tick(after=5000)
        stage.finish(stage.claim(100))
        assert stage.tick(after=5000), "there is a worker"
        stage.host.leave(100)
        assert stage.tick(after=2999)
        assert not stage.tick(after=1)

    def test_not_while_a_worker_is_on_its_way(self, stage):
        stage.batch("b", 1)
        stage.tick()
        stage.finish(stage.claim(999))
        assert stage.tick(after=9000)
        assert stage.tick(after=2000)
        assert not stage.tick(after=3000)

    def test_not_before_a_retry_of_today(self, stage):
        (task,) = stage.add("later", 1, start_at=stage.now + 3_600_000)
        stage.batch("later", 0)
        assert stage.tick(after=60_000) and stage.tick(after=60_000)
        stage.tick(after=3_600_000)
        assert stage.store.task(task).state == "active"
        assert len(stage.started()) == 1

    def test_never_when_told_to_stay(self, make):
        stage = make(idle_ms=None)
        assert stage.tick() and stage.tick(after=10**9)

    @pytest.mark.parametrize("what", ["drain", "stop"])
    def test_when_told_so_with_all_workers(self, stage, what):
        stage.batch("b", 50)
        stage.settle()
        stage.started()
        assert stage.tick(what)
        assert stage.host.asked == [(pid, what) for pid in range(100, 104)]
        stage.host.leave(100)
        assert stage.tick(what)
        for pid in (101, 102, 103):
            stage.host.leave(pid)
        assert not stage.tick(what)
        assert stage.started() == []

    def test_a_second_signal_stops_those_who_drain(self, stage):
        stage.batch("b", 2)
        stage.settle()
        stage.tick("drain")
        stage.tick("drain")
        assert len(stage.host.asked) == 2, "asked once to drain"
        stage.tick("stop")
        assert stage.host.asked[2:] == [(100, "stop"), (101, "stop")]

    def test_one_that_comes_to_life_late_is_told_too(self, stage):
        stage.batch("b", 1)
        stage.tick()
        assert stage.tick("drain"), "somebody is on his way"
        stage.host.arrive(stage.now)
        assert stage.tick("drain")
        assert stage.host.asked == [(100, "drain")]


def test_the_status_is_published_and_news_is_an_event(stage):
    stage.batch("b", 1)
    stage.tick()
    assert stage.host.words[-1] == {
        "at": stage.now,
        "zone": SAFE,
        "cpu": 0.25,
        "own": 0.0,
        "ram": 0.25,
        "said": "as told",
        "target": 1,
        "workers": 0,
    }
    assert [e for e in stage.store.events(0, 100) if e.kind == "governor"] == []
    stage.governor.news = True
    stage.tick()
    (event,) = (e for e in stage.store.events(0, 100) if e.kind == "governor")
    assert (event.actor, event.at) == ("supervisor", stage.now)
    assert event.data == {**stage.host.words[-1], "at": stage.now}


def test_the_status_is_written_again_when_a_decision_changes_or_a_second_has_passed(stage):
    stage.batch("b", 1)
    stage.tick()
    stage.tick()
    stage.tick()
    assert len(stage.host.words) == 1, "nothing has changed"
    stage.governor.reading = Reading(SAFE, 0, Load(0.5, 0.0, 1, 4))
    stage.tick()
    assert len(stage.host.words) == 1, "the load alone waits for its second"
    stage.host.arrive(stage.now)
    stage.tick()
    assert [word["workers"] for word in stage.host.words] == [0, 1]
    stage.tick(after=1_000)
    assert [word["cpu"] for word in stage.host.words] == [0.25, 0.5, 0.5]


def test_a_full_disk_is_told_and_nobody_is_started_until_there_is_room(stage):
    stage.batch("b", 3)
    host, begin = stage.host, stage.now
    host.bytes_left = 1000
    stage.tick()
    assert host.started == [] and "no space left" in host.words[-1]["trouble"]
    host.bytes_left = 1 << 40
    stage.tick()
    assert host.started and "trouble" not in host.words[-1]
    said = [event.data["said"] for event in stage.store.events(0, 999) if event.kind == "trouble"]
    assert ["no space left" in each for each in said] == [True, True] and stage.now > begin
