"""The supervisor tick by tick: a real store, and a scripted host."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from hypervisor.queue.pause import Pause
from hypervisor.queue.task import NewTask
from hypervisor.resources.governor import Governor
from hypervisor.resources.zones import Load
from hypervisor.runs.config import Settings
from hypervisor.store.sqlite import SqliteDatabase
from tests.support.ledger import Ledger
from tests.support.stage import worker_of


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

    @pytest.mark.parametrize(
        "limit, most", [({}, 8), ({"workers": 4}, 4), ({"strategy": "parallel"}, 4)]
    )
    def test_more_than_cores_while_they_wait_unless_somebody_set_a_number(self, make, limit, most):
        probe = SimpleNamespace(read=lambda workers: Load(0.01, 0.01, 1, 100))
        stage = make(cores=4, governor=Governor(probe))
        stage.store.set_memory_peak(1, "run")
        stage.batch("b", 50, **limit)
        stage.settle()
        for pid in range(100, 104):
            stage.claim(pid)
        for _ in range(6):
            stage.tick(after=250)
        assert len(stage.started()) == most

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

    def test_draining_workers_count_as_live(self, stage):
        """The governor limits the number of live workers: none is started before a draining one
        exits."""
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


class TestMemory:
    def test_declared_counts_more_than_learned(self, stage):
        stage.store.set_memory_peak(700, "run")
        stage.batch("b", 5)
        stage.tick()
        assert stage.governor.seen[-1].next == 700
        stage.batch("b", 0, memory=900)
        stage.tick()
        assert stage.governor.seen[-1].next == 900

    def test_unknown_unless_every_type_is_known(self, stage):
        stage.store.set_memory_peak(700, "run")
        stage.batch("b", 5)
        stage.add("b", 1, type="other")
        stage.tick()
        assert stage.governor.seen[-1].next is None

    def test_each_worker_is_shown_with_what_it_runs(self, stage):
        stage.store.set_memory_peak(700, "run")
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
        stage.store.set_memory_peak(1, "run")
        batch = stage.batch("b", 5)
        stage.tick()
        assert stage.started() == [batch] * 2
        (event,) = (e for e in stage.store.events(0, 100) if e.kind == "governor")
        reason = "CPU 75 % busy with other work, RAM 80 % (warning)"
        assert event.data["message"] == f"2 of 5 started: {reason}"
