"""What an agent's run leaves behind: in the store, in its home, for other agents."""

from __future__ import annotations

import errno
import os

import pytest

from hypervisor.agents import stream_state as kinds
from hypervisor.agents.stream_state import StreamError, StreamState
from hypervisor.batches.plans.propose import propose
from hypervisor.core import validate
from hypervisor.core.errors import SchemaMismatch
from hypervisor.queue.agent_session import NewSession, Tokens
from hypervisor.queue.attempt import Ended
from hypervisor.queue.claim import complete
from hypervisor.queue.lease import AttemptResult, parse_token
from hypervisor.queue.task import NewTask, TaskFilter
from hypervisor.resources.host import LocalHost
from hypervisor.runs.scratch import Scratch
from tests.agents.agent_bench import ACCOUNT, DONE, LIMIT
from tests.support.benches import WELL


def test_a_failure_that_is_reported_is_final_and_has_its_evidence(bench):
    bench = bench()
    report = {"status": "failed", "reason": "no such thing", "evidence": "line 3"}
    task = bench.item("a", (DONE._replace(result=report), WELL), retries=5)
    bench.work()
    found = bench.task(task)
    assert (found.state, found.reason) == ("failed", "failed: no such thing")
    assert [each.text for each in bench.store.receipts_of_task(task)] == ["line 3"]


@pytest.mark.parametrize(
    "state, outcome",
    [
        (StreamState("s-1", message="I wonder.", ended=True, ok=True), "failed"),  # and tried again
        (StreamState("s-1", error=StreamError(kinds.RESUME, "no such session")), "released"),
        (StreamState("s-1", error=StreamError(kinds.AUTH, "invalid key", 401)), "released"),
    ],
)
def test_evidence_is_kept_of_what_is_tried_again(bench, state, outcome):
    bench = bench()
    task = bench.item("a", retries=5)
    bench.in_turn("a", [(state, WELL)], [(DONE, WELL)])
    bench.work()
    assert bench.outcomes_of(task)[0] == outcome
    told = state.error.text if state.error else state.message
    assert bench.store.receipts_of_task(task)[0].text == told


def test_a_refused_tool_among_several_is_reported(bench):
    bench = bench()
    bench.item("a", (DONE._replace(denied=("Bash", "WebFetch", "Bash"), tools=4), WELL))
    bench.work()
    (run,) = bench.runs()
    assert (run.outcome, run.denied) == ("completed", ("Bash", "WebFetch"))


class TestAfterItsOwnVerdict:
    """The agent has ended its claim over MCP; it may only print a last message."""

    @pytest.fixture
    def bench(self, bench):
        return bench()

    def ends(self, bench, event, state=None):
        def verdict():
            token = parse_token(bench.runner.token)
            bench.store.settle([AttemptResult(token, event, reason="so")])
            bench.runner.stream_state = state or bench.runner.stream_state

        return verdict

    def test_what_it_cost_is_written_down_at_its_end(self, bench):
        task = bench.item("a", self.ends(bench, "complete"), (DONE, Ended(0, None, 0.75, 8 << 20)))
        bench.work()
        (attempt,) = bench.store.detail(task).attempts
        assert (attempt.outcome, attempt.cpu_ms, attempt.peak_kb) == ("done", 750, 8 << 10)

    def test_the_call_that_ended_it_may_be_heard_late(self, bench):
        late = StreamState("s-1", tools=1)
        task = bench.item("a", self.ends(bench, "block"), None, late, None, (DONE, WELL))
        bench.work()
        assert "stop" not in bench.log and bench.task(task).state == "blocked"

    def test_one_that_works_on_is_stopped(self, bench):
        working = [StreamState("s-1", tools=count) for count in (1, 2)]
        task = bench.item("a", self.ends(bench, "block"), None, *working, None, None)
        bench.work()
        assert "stop" in bench.log and bench.task(task).state == "blocked"
        assert [run.outcome for run in bench.runs()] == ["blocked"]
        (attempt,) = bench.store.detail(task).attempts
        assert attempt.cpu_ms == 500

    def test_one_that_failed_is_stopped_at_once(self, bench):
        """Its task may be claimed again at any moment."""
        task = bench.item("a", self.ends(bench, "fail"), None, None)
        bench.work()
        assert "stop" in bench.log and bench.task(task).state == "failed"
        assert not bench.homes.exists(task)


class TestSchema:
    """A report whose data does not match goes back to the same session, once."""

    SCHEMA = '{"type": "object", "required": ["count"]}'
    BAD = DONE._replace(result={"status": "completed", "data": {"n": 1}})
    GOOD = DONE._replace(result={"status": "completed", "data": {"count": 1}})
    WHY = "the data does not match the schema: data: 'count' is a required property"

    def test_it_is_sent_back_and_corrected(self, bench):
        bench = bench(schema=self.SCHEMA)
        task = bench.item("a")
        bench.in_turn("a", [(self.BAD, WELL)], [(self.GOOD, WELL)])
        bench.work()
        assert bench.outcomes_of(task) == ["released", "done"]
        assert bench.task(task).result == {"data": {"count": 1}}
        assert bench.task(task).failures == 0
        assert [run.outcome for run in bench.runs()] == ["misfit", "completed"]
        text, session = bench.runner.briefs[1][:2]
        assert (text, session) == ("correct data: 'count' is a required property", "s-1")

    def test_the_second_time_the_task_fails(self, bench):
        bench = bench(schema=self.SCHEMA)
        task = bench.item("a", retries=5)
        bench.in_turn("a", *[[(self.BAD, WELL)]] * 3)
        bench.work()
        assert bench.outcomes_of(task) == ["released", "failed"]
        assert (bench.task(task).state, bench.task(task).reason) == ("failed", self.WHY)
        assert not bench.homes.exists(task)

    def test_a_refusal_over_mcp_counts_too(self, bench):
        bench = bench(schema=self.SCHEMA)

        def completes():
            with pytest.raises(SchemaMismatch):
                complete(bench.hv, bench.runner.token, {"n": 1})
            return (self.BAD, WELL)

        task = bench.item("a", completes)
        bench.work()
        assert bench.outcomes_of(task) == ["failed"] and bench.task(task).reason == self.WHY

    def test_a_limit_between_the_two_changes_nothing(self, bench):
        bench = bench(schema=self.SCHEMA)
        task = bench.item("a")
        gone = StreamState("s-1", error=StreamError(kinds.RESUME, "no such session"))
        bench.in_turn("a", [(self.BAD, WELL)], [(gone, WELL)], [(self.BAD, WELL)])
        bench.work()
        assert bench.outcomes_of(task) == ["released", "released", "failed"]


def test_a_block_without_a_next_step_names_none(bench):
    bench = bench()
    report = {"status": "blocked", "reason": "no key"}
    task = bench.item("a", (DONE._replace(result=report), WELL))
    bench.work()
    assert (bench.task(task).state, bench.task(task).unblock) == ("blocked", None)


def test_a_result_as_large_as_may_be_is_kept_with_what_was_proposed_before(bench):
    bench = bench()
    data = "x" * (validate.MAX_TEXT_LENGTH - 45)

    def proposes():
        propose(bench.hv, bench.runner.token, {"do": "delete", "path": "old.txt"})
        return (DONE._replace(result={"status": "completed", "data": data}), WELL)

    task = bench.item("a", proposes)
    bench.work()
    result = bench.task(task).result
    assert (len(result["data"]), len(result["actions"])) == (len(data), 1)


def test_one_that_could_not_be_started_leaves_no_open_run(bench):
    bench = bench()
    bench.item("a", OSError(errno.ENOENT, "no such program"))
    bench.work()
    assert [run.outcome for run in bench.runs()] == ["stopped"]


def test_the_run_of_a_killed_worker_is_closed_by_the_next(bench):
    bench = bench()
    task = bench.item("a", (DONE, WELL))
    bench.store.open_session(NewSession("claude", ACCOUNT, bench.batch, "gone", task, 1))
    bench.work()
    assert sorted(run.outcome for run in bench.runs()) == ["completed", "crashed"]


def test_an_agent_that_cannot_resume_starts_over(bench):
    bench = bench(agents=("agy",))
    bench.item("a", StreamState("s-1", Tokens(5, 5), error=LIMIT))
    bench.work("agy")
    bench.store.end_cooldown("account:agy", "t")
    bench.runner.items["a"] = [(DONE, WELL)]
    bench.work("agy")
    assert [brief[1] for brief in bench.runner.briefs] == ["", ""]


def test_a_task_needs_no_item(bench):
    bench = bench()
    for data in (None, {"item": 7}, ["odd"]):
        bench.store.add([NewTask("Write it", type="run", data=data)], "b", "t")
    bench.runner.items["Write it"] = [(DONE, WELL)]
    bench.work()
    assert [brief[0] for brief in bench.runner.briefs] == ["do Write it"] * 3


def test_an_agent_that_hung_is_reported(bench):
    bench = bench()

    def hangs():
        bench.runner.hung = True
        return (DONE, WELL)

    task = bench.item("a", hangs)
    bench.item("b", (DONE, WELL))
    bench.work()
    (told,) = bench.events("leftovers")
    assert told.task == task and "did not exit" in told.data["message"]


class TestChanges:
    """In a copy of the project: kept as a patch, unless they are not needed."""

    @pytest.fixture
    def keep(self, monkeypatch):
        """Sets the size of an agent's changes, or why they cannot be kept."""

        def keep_as(size):
            def keep(scratch, path):
                if isinstance(size, Exception):
                    raise size
                return size

            monkeypatch.setattr(Scratch, "make", lambda scratch, replace: None)
            monkeypatch.setattr(Scratch, "keep", keep)

        keep_as(7)
        return keep_as

    def kept(self, bench, *answers):
        task = bench.item("a", *answers)
        bench.work()
        return [(each.task == task, each.data["bytes"]) for each in bench.events("patch")]

    def test_of_one_that_ended(self, bench, keep):
        bench = bench(workspace="scratch")
        assert self.kept(bench, (DONE, WELL)) == [(True, 7)]
        (told,) = bench.events("patch")
        assert told.data["path"].endswith(".patch") and told.data["path"] in told.data["message"]

    def test_of_one_that_was_stopped(self, bench, keep):
        bench = bench(workspace="scratch", task_budget=1)
        assert self.kept(bench, StreamState("s-1", Tokens(1, 1), 0.2), None) == [(True, 7)]

    def test_not_of_one_that_was_cancelled(self, bench, keep):
        bench = bench(workspace="scratch")

        def cancel():
            (task,) = bench.store.list_tasks(TaskFilter(), 9)
            bench.store.ask_stop(task.id, "cancel", "enough", "somebody")

        assert self.kept(bench, cancel, None) == []

    def test_not_in_the_project_itself(self, bench):
        assert self.kept(bench(), (DONE, WELL)) == []

    @pytest.mark.parametrize(
        "size, said", [(0, "it changed nothing"), (OSError(28, "disk full"), "could not be saved")]
    )
    def test_none_or_no_room(self, bench, keep, size, said):
        bench = bench(workspace="scratch")
        keep(size)
        assert self.kept(bench, (DONE, WELL)) == [(True, 0)]
        (told,) = bench.events("patch")
        assert said in told.data["message"] and told.data["path"] == ""


def test_homes_of_dead_workers_go_and_those_of_living_ones_stay(bench):
    bench = bench()
    start = LocalHost().process_start(os.getpid())
    assert start is not None
    dead, alive, odd = f"{os.getpid()}-{start + 1}", f"{os.getpid()}-{start}", "7-x"
    for name in (dead, alive, odd):
        bench.homes.prepare(name)
    bench.work()
    assert [bench.homes.exists(name) for name in (dead, alive, odd)] == [False, True, True]
