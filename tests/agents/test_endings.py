"""What the end of an agent's run leaves behind: in the store, in its home, for the others."""

from __future__ import annotations

import errno
import os

import pytest

from hypervisor.agents import stream_state as kinds
from hypervisor.agents.apply_outcome import MOST_UNREACHED
from hypervisor.agents.cooldown import Cooldown
from hypervisor.agents.session import NewSession
from hypervisor.agents.stream_state import StreamError, StreamState, Tokens
from hypervisor.agents.watch import UNREACHED, RetryPatience
from hypervisor.batches.plans.propose import propose
from hypervisor.core import validate
from hypervisor.core.errors import SchemaMismatch
from hypervisor.queue.attempt import Ended
from hypervisor.queue.claim import complete
from hypervisor.queue.lease import AttemptResult, parse_token
from hypervisor.queue.task import NewTask, TaskFilter
from hypervisor.resources.host import LocalHost
from tests.agents.agent_bench import ACCOUNT
from tests.support.benches import WELL

DONE = StreamState(
    "s-1", Tokens(100, 10), 0.10, 1, 1, ended=True, ok=True, result={"status": "completed"}
)
LIMIT = StreamError(kinds.QUOTA, "too many requests", 429, retrying=True)


def test_a_failure_that_is_reported_is_final_and_has_its_evidence(bench):
    bench = bench()
    report = {"status": "failed", "reason": "no such thing", "evidence": "line 3"}
    task = bench.item("a", (DONE._replace(result=report), WELL), retries=5)
    bench.work()
    found = bench.task(task)
    assert (found.state, found.reason) == ("failed", "refused: no such thing")
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


def test_a_refused_tool_among_several_is_told(bench):
    bench = bench()
    bench.item("a", (DONE._replace(denied=("Bash", "WebFetch", "Bash"), tools=4), WELL))
    bench.work()
    (run,) = bench.runs()
    assert (run.outcome, run.denied) == ("completed", ("Bash", "WebFetch"))


class TestAfterItsOwnVerdict:
    """The agent has ended its claim over MCP; what it may still do is say its last words."""

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
        assert [run.outcome for run in bench.runs()] == ["settled"]
        (attempt,) = bench.store.detail(task).attempts
        assert attempt.cpu_ms == 500

    def test_one_that_failed_is_stopped_at_once(self, bench):
        """Its task may be handed out again at any moment."""
        task = bench.item("a", self.ends(bench, "fail"), None, None)
        bench.work()
        assert "stop" in bench.log and bench.task(task).state == "failed"
        assert not bench.homes.exists(task)


class TestSchema:
    """A report whose data does not fit goes back to the same session, once."""

    SCHEMA = '{"type": "object", "required": ["count"]}'
    BAD = DONE._replace(result={"status": "completed", "data": {"n": 1}})
    GOOD = DONE._replace(result={"status": "completed", "data": {"count": 1}})
    WHY = "the data does not fit the schema: data: 'count' is a required property"

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
    data = "x" * (validate.LONGEST_TEXT - 45)

    def proposes():
        propose(bench.hv, bench.runner.token, {"do": "delete", "path": "old.txt"})
        return (DONE._replace(result={"status": "completed", "data": data}), WELL)

    task = bench.item("a", proposes)
    bench.work()
    result = bench.task(task).result
    assert (len(result["data"]), len(result["actions"])) == (len(data), 1)


def test_a_reset_that_was_told_is_the_end_of_the_rest(bench):
    bench = bench()
    bench.item("a", StreamState("s-1", error=StreamError(kinds.QUOTA, "try again in 300s", 429)))
    bench.work()
    (brake,) = bench.store.brakes()
    assert brake.until > bench.store.now() + 200_000


def test_a_limit_that_only_the_exit_code_tells_makes_the_account_rest_too(bench):
    bench = bench(agents=("gemini",))
    task = bench.item("a", (StreamState("s-1", ended=True), Ended(173, None, 0.1, 0)))
    bench.work("gemini")
    (brake,) = bench.store.brakes()
    assert (brake.account, bench.outcomes_of(task)) == ("account:gemini", ["released"])
    assert brake.reason.startswith("quota: ")


def test_trouble_that_the_agent_deals_with_itself_does_not_end_it(bench):
    bench = bench()
    trying = StreamError(kinds.NETWORK, "cut off", retrying=True)
    task = bench.item("a", StreamState("s-1", error=trying), None, (DONE, WELL))
    bench.work()
    assert "stop" not in bench.log and bench.outcomes_of(task) == ["done"]


@pytest.mark.parametrize("kind", kinds.OUTAGES)
def test_an_outage_costs_the_task_nothing_and_makes_the_account_rest(bench, kind):
    bench = bench()
    away = StreamError(kind, "Connection refused")
    task = bench.item("a", (StreamState("s-1", error=away, ended=True), Ended(1, None, 0.1, 0)))
    bench.work()
    found = bench.task(task)
    assert (found.state, found.failures, found.crashes) == ("active", 0, 0)
    (brake,) = bench.store.brakes()
    assert (brake.kind, brake.level) == (kind, 1)
    assert 4_000 < brake.until - bench.store.now() <= 5_500
    (event,) = [each for each in bench.store.events(0, 999) if each.kind == "brake"]
    assert event.data["said"].startswith("anthropic: provider ")
    assert "; trying again in " in event.data["said"]


def test_an_agent_that_tries_for_ever_is_noticed():
    def away():
        return StreamError(kinds.NETWORK, "waiting for network", retrying=True)

    patience = RetryPatience()
    assert not patience.is_over(away(), 100.0)
    assert not patience.is_over(away(), 100.0 + UNREACHED - 0.1)
    assert patience.is_over(last := away(), 100.0 + UNREACHED)
    assert not patience.is_over(last, 300.0), "it may have reached it, and wait for the answer"
    assert not patience.is_over(None, 301.0), "an answer came"
    assert not patience.is_over(away(), 302.0)
    assert RetryPatience().is_over(LIMIT, 0.0), "nobody waits for a limit"


def outages(bench, task, times, seconds_ago=600):
    """Runs of a task that an outage ended."""
    now = bench.store.now()
    for number in range(times):
        new = NewSession("claude", ACCOUNT, bench.batch, "w", task, number + 1)
        made = bench.store.open_session(new, now - seconds_ago * 1000 + number)
        bench.store.close_session(made, "network", Tokens(), None, False, 0, now)


AWAY = (
    StreamState("s-1", error=StreamError(kinds.NETWORK, "cut off"), ended=True),
    Ended(1, None, 0.1, 0),
)


def test_one_that_meets_an_outage_again_lets_another_task_look_first(bench):
    bench = bench()
    task = bench.item("a", AWAY)
    outages(bench, task, 1)
    bench.work()
    found, (brake,) = bench.task(task), bench.store.brakes()
    assert (found.state, found.failures) == ("waiting", 0)
    assert found.start_at is not None and found.start_at > brake.until


def test_however_long_an_outage_lasts_no_task_fails(bench):
    bench = bench()
    task = bench.item("a", AWAY)
    outages(bench, task, 50)
    bench.work()
    assert bench.task(task).state == "waiting" and bench.task(task).failures == 0


def test_a_task_that_alone_meets_outages_fails_in_the_end(bench):
    bench = bench()
    task, other = bench.item("a", AWAY), bench.item("b", AWAY)
    outages(bench, task, MOST_UNREACHED - 1)
    made = bench.store.open_session(NewSession("claude", ACCOUNT, bench.batch, "w", other, 1))
    bench.store.close_session(made, "completed", Tokens(9, 9), None, False, 1)
    bench.work()
    assert bench.task(task).state == "failed" and "network" in bench.task(task).reason


@pytest.mark.parametrize(
    "kind, status, text, step",
    [
        (kinds.BILLING, 402, "Your credit balance is too low", "Add credit"),
        (kinds.ACCESS, 403, "Your plan does not include this model", "--model"),
    ],
)
def test_what_only_a_person_can_change_pauses_the_batch(bench, kind, status, text, step):
    bench = bench()
    trouble = StreamError(kind, text, status)
    task = bench.item("a", (StreamState("s-1", error=trouble, ended=True), Ended(1, None, 0.1, 0)))
    bench.work()
    (pause,) = bench.store.pauses()
    assert text in pause.reason and step in pause.reason and "not logged in" not in pause.reason
    assert (bench.task(task).state, bench.task(task).failures) == ("active", 0)
    assert bench.store.brakes() == []


def test_a_brake_is_lifted_by_an_answer_not_by_a_start(bench):
    bench = bench()
    bench.store.set_brake(Cooldown(ACCOUNT, bench.store.now() - 1, 1, "limit", 0), "t")
    seen = []

    def look():
        seen.append(len(bench.store.brakes()))

    bench.item("a", StreamState("s-1"), look, StreamState("s-1", tools=1), look, (DONE, WELL))
    bench.work()
    assert seen == [1, 0]


def test_what_is_decided_is_written_before_a_rest(bench):
    bench = bench()
    task = bench.item("a", StreamState("s-1", error=LIMIT))
    seen = []

    def pause(seconds):
        seen.append(bench.outcomes_of(task))
        bench.runner.asked = "drain"

    bench.runner.pause = pause
    bench.work()
    assert seen == [["released"]]


def test_one_without_money_does_not_wait_for_more(bench):
    bench = bench(budget=50_000)
    tasks = [bench.item(text, (DONE, WELL)) for text in "ab"]
    looks: list[float] = []
    bench.runner.pause = looks.append  # nobody asks it to go
    bench.work()
    assert [bench.task(task).state for task in tasks] == ["done", "active"] and len(looks) == 1


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


def test_an_agent_that_cannot_resume_starts_anew(bench):
    bench = bench(agents=("agy",))
    bench.item("a", StreamState("s-1", Tokens(5, 5), error=LIMIT))
    bench.work("agy")
    bench.store.lift_brake("account:agy", "t")
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


def test_an_agent_that_hung_is_told_of(bench):
    bench = bench()

    def hangs():
        bench.runner.hung = True
        return (DONE, WELL)

    task = bench.item("a", hangs)
    bench.item("b", (DONE, WELL))
    bench.work()
    (told,) = bench.events("leftovers")
    assert told.task == task and "did not end" in told.data["said"]


class TestChanges:
    """In a copy of the project: kept as a patch, unless nobody wants them."""

    def kept(self, bench, *answers, size=7):
        def keep(task, path):
            if isinstance(size, Exception):
                raise size
            return size

        bench.runner.keep_changes = keep
        task = bench.item("a", *answers)
        bench.work()
        return [(each.task == task, each.data["bytes"]) for each in bench.events("patch")]

    def test_of_one_that_ended(self, bench):
        bench = bench(workspace="scratch")
        assert self.kept(bench, (DONE, WELL)) == [(True, 7)]
        (told,) = bench.events("patch")
        assert told.data["path"].endswith(".patch") and told.data["path"] in told.data["said"]

    def test_of_one_that_was_stopped(self, bench):
        bench = bench(workspace="scratch", task_budget=1)
        assert self.kept(bench, StreamState("s-1", Tokens(1, 1), 0.2), None) == [(True, 7)]

    def test_not_of_one_that_was_cancelled(self, bench):
        bench = bench(workspace="scratch")

        def cancel():
            (task,) = bench.store.list_tasks(TaskFilter(), 9)
            bench.store.ask_stop(task.id, "cancel", "enough", "somebody")

        assert self.kept(bench, cancel, None) == []

    def test_not_in_the_project_itself(self, bench):
        assert self.kept(bench(), (DONE, WELL)) == []

    @pytest.mark.parametrize(
        "size, said", [(0, "it changed nothing"), (OSError(28, "disk full"), "could not be kept")]
    )
    def test_none_or_no_room(self, bench, size, said):
        bench = bench(workspace="scratch")
        assert self.kept(bench, (DONE, WELL), size=size) == [(True, 0)]
        (told,) = bench.events("patch")
        assert said in told.data["said"] and told.data["path"] == ""


def test_homes_of_dead_workers_go_and_those_of_living_ones_stay(bench):
    bench = bench()
    start = LocalHost().process_start(os.getpid())
    assert start is not None
    dead, alive, odd = f"{os.getpid()}-{start + 1}", f"{os.getpid()}-{start}", "7-x"
    for name in (dead, alive, odd):
        bench.homes.prepare(name)
    bench.work()
    assert [bench.homes.exists(name) for name in (dead, alive, odd)] == [False, True, True]


def test_after_a_long_attempt_budgets_and_cooldowns_are_asked_too(bench):
    bench = bench(budget=150_000)
    tasks = [bench.item(text, (DONE, WELL)) for text in "abcd"]
    bench.work()
    assert [bench.task(task).state for task in tasks] == ["done"] * 2 + ["active"] * 2


def test_nor_does_a_long_attempt_claim_for_an_account_that_cools_down(bench):
    bench = bench()
    bench.item("a", StreamState("s-1", error=LIMIT))
    other = bench.item("b", (DONE, WELL))
    bench.work()
    assert bench.outcomes_of(other) == []
