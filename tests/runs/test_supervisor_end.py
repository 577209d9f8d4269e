"""When the supervisor exits, and what it publishes until then."""

from __future__ import annotations

import pytest

from hypervisor.resources.governor import Reading
from hypervisor.resources.zones import SAFE, Load


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

    def test_work_starts_the_while_again(self, stage):
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
        "message": "as told",
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
