"""What the supervisor does about emergencies, failed starts, dead workers and a full disk."""

from __future__ import annotations

from hypervisor.queue.lease import AttemptResult, Leftovers, parse_token
from hypervisor.queue.pause import BATCH
from tests.support.stage import BOOT


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
        """It is too big for this host: if it were put back, the same would happen again."""
        stage.batch("b", 1)
        stage.settle()
        (lease,) = stage.claim(100)
        stage.governor.stop, stage.governor.alone = ("w100",), True
        stage.tick()
        assert stage.host.asked == []
        (stop,) = stage.store.stops([lease.task.id])
        assert (stop.next, stop.reason, stop.actor) == ("fail", "as told", "supervisor")

    def test_a_stopped_one_is_not_replaced_by_an_equal_elsewhere(self, stage):
        """Two batches, room for one: the live worker stays, no new one is started."""
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

    def test_a_killed_one_is_not_a_false_start(self, stage):
        stage.batch("b", 1)
        for _ in range(5):
            stage.tick()
            stage.host.die(stage.host.started[-1][0], code=-9)
        stage.tick()
        assert stage.store.pauses() == []
        assert len(stage.started()) == 6

    def test_other_batches_continue(self, stage):
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
        """It is not our child: no signal reports its end, and no sweep is due."""
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


def test_a_full_disk_is_reported_and_no_worker_starts_until_there_is_room(stage):
    stage.batch("b", 3)
    host, begin = stage.host, stage.now
    host.bytes_left = 1000
    stage.tick()
    assert host.started == [] and "no space left" in host.words[-1]["trouble"]
    host.bytes_left = 1 << 40
    stage.tick()
    assert host.started and "trouble" not in host.words[-1]
    said = [
        event.data["message"] for event in stage.store.events(0, 999) if event.kind == "trouble"
    ]
    assert ["no space left" in each for each in said] == [True, True] and stage.now > begin
