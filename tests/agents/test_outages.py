"""Limits, outages and empty accounts: what waits, what is retried, what pauses the batch."""

from __future__ import annotations

import pytest

from hypervisor.agents import stream_state as kinds
from hypervisor.agents.apply_outcome import MAX_UNREACHED
from hypervisor.agents.cooldown import Cooldown
from hypervisor.agents.stream_state import StreamError, StreamState
from hypervisor.agents.watch import UNREACHED, RetryPatience
from hypervisor.queue.agent_session import NewSession, Tokens
from hypervisor.queue.attempt import Ended
from tests.agents.agent_bench import ACCOUNT, DONE, LIMIT
from tests.support.benches import WELL


def test_a_reset_that_was_told_is_the_end_of_the_rest(bench):
    bench = bench()
    bench.item("a", StreamState("s-1", error=StreamError(kinds.QUOTA, "try again in 300s", 429)))
    bench.work()
    (cooldown,) = bench.store.cooldowns()
    assert cooldown.until > bench.store.now() + 200_000


def test_a_limit_that_only_the_exit_code_tells_makes_the_account_rest_too(bench):
    bench = bench(agents=("gemini",))
    task = bench.item("a", (StreamState("s-1", ended=True), Ended(173, None, 0.1, 0)))
    bench.work("gemini")
    (cooldown,) = bench.store.cooldowns()
    assert (cooldown.account, bench.outcomes_of(task)) == ("account:gemini", ["released"])
    assert cooldown.reason.startswith("quota: ")


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
    (cooldown,) = bench.store.cooldowns()
    assert (cooldown.kind, cooldown.level) == (kind, 1)
    assert 4_000 < cooldown.until - bench.store.now() <= 5_500
    (event,) = [each for each in bench.store.events(0, 999) if each.kind == "cooldown"]
    assert event.data["message"].startswith("anthropic: provider ")
    assert "; trying again in " in event.data["message"]


def test_an_agent_that_tries_forever_is_noticed():
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
    found, (cooldown,) = bench.task(task), bench.store.cooldowns()
    assert (found.state, found.failures) == ("waiting", 0)
    assert found.start_at is not None and found.start_at > cooldown.until


def test_however_long_an_outage_lasts_no_task_fails(bench):
    bench = bench()
    task = bench.item("a", AWAY)
    outages(bench, task, 50)
    bench.work()
    assert bench.task(task).state == "waiting" and bench.task(task).failures == 0


def test_a_task_that_alone_meets_outages_fails_in_the_end(bench):
    bench = bench()
    task, other = bench.item("a", AWAY), bench.item("b", AWAY)
    outages(bench, task, MAX_UNREACHED - 1)
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
    assert bench.store.cooldowns() == []


def test_a_brake_is_lifted_by_an_answer_not_by_a_start(bench):
    bench = bench()
    bench.store.start_cooldown(Cooldown(ACCOUNT, bench.store.now() - 1, 1, "limit", 0), "t")
    seen = []

    def look():
        seen.append(len(bench.store.cooldowns()))

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
    bench.runner.pause = looks.append  # it is not asked to exit
    bench.work()
    assert [bench.task(task).state for task in tasks] == ["done", "active"] and len(looks) == 1


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
