"""The worker of agents, attempt by attempt: a real store, and scripted agents."""

from __future__ import annotations

import pytest

from hypervisor.agents import stream_state as kinds
from hypervisor.agents.agent_settings import AgentSettings
from hypervisor.agents.cooldown import Cooldown
from hypervisor.agents.session import to_resume
from hypervisor.agents.stream_state import StreamError, StreamState
from hypervisor.batches.plans.propose import propose
from hypervisor.queue.agent_session import Tokens
from hypervisor.queue.attempt import Ended
from hypervisor.queue.lease import AttemptResult, parse_token
from hypervisor.runs.config import Settings
from tests.agents.agent_bench import ACCOUNT
from tests.support.benches import WELL
from tests.support.proposing import left_over

BADLY = Ended(1, None, 0.1, 0)
SAID = StreamState(
    "s-1",
    Tokens(100, 10),
    0.10,
    1,
    1,
    ended=True,
    ok=True,
    result={"status": "completed", "summary": "did it", "receipts": ["seen"]},
)
LIMIT = StreamError(kinds.QUOTA, "too many requests", 429, retrying=True)


def test_a_report_completes_the_task(bench):
    bench = bench()
    task = bench.item("a", (SAID, WELL))
    bench.work()
    assert bench.task(task).state == "done"
    assert bench.task(task).result == {"summary": "did it", "receipts": ["seen"]}
    assert [each.text for each in bench.store.receipts_of_task(task)] == ["seen"]
    (run,) = bench.runs()
    assert (run.agent, run.account, run.task, run.attempt) == ("claude", ACCOUNT, task, 1)
    assert (run.session, run.outcome, run.tokens) == ("s-1", "completed", Tokens(100, 10))
    assert (run.cost_micros, run.estimated, run.turns) == (100_000, False, 1)
    assert not bench.homes.exists(task), "nothing is kept of what is finished"
    assert bench.runner.briefs[0][:3] == ("do a", "", None)


def test_the_session_is_written_down_at_its_first_word(bench):
    bench = bench()

    def later():
        (run,) = bench.runs()
        assert (run.session, run.outcome) == ("s-1", None)
        return (SAID, WELL)

    bench.item("a", StreamState("s-1"), later)
    bench.work()
    assert bench.runs()[0].outcome == "completed"


@pytest.mark.parametrize("trouble", [LIMIT, StreamError(kinds.OVERLOAD, "is overloaded", 529)])
def test_a_limit_stops_the_agent_at_once_and_the_account_rests(bench, trouble):
    bench = bench()
    task = bench.item("a", StreamState("s-1", error=trouble))
    other = bench.item("b", (SAID, WELL))
    bench.work()
    assert "stop" in bench.log and bench.outcomes_of(task) == ["released"]
    assert bench.task(task).state == "active" and bench.task(task).failures == 0
    (cooldown,) = bench.store.cooldowns()
    assert cooldown.account == ACCOUNT and cooldown.until > bench.store.now()
    assert bench.outcomes_of(other) == [], "nobody claims for an account that rests"
    assert cooldown.reason == trouble.text
    assert len(bench.events("cooldown")) == 1
    assert bench.runs()[0].outcome == trouble.kind
    assert bench.homes.exists(task), "the session may go on"


def test_after_the_rest_the_session_continues_and_the_brake_is_lifted(bench):
    bench = bench()
    task = bench.item("a", StreamState("s-1", Tokens(5, 5), error=LIMIT))
    bench.work()
    bench.store.end_cooldown(ACCOUNT, "t")
    bench.store.start_cooldown(Cooldown(ACCOUNT, bench.store.now() - 1, 1, "was", 0), "t")
    answer = SAID._replace(session="s-1")
    bench.runner.items["a"] = [StreamState("s-1", Tokens(1, 1)), (answer, WELL)]
    bench.work()
    assert bench.outcomes_of(task) == ["released", "done"]
    text, session, _, known = bench.runner.briefs[-1]
    assert (text, session, known.tokens_before) == ("go on", "s-1", Tokens(5, 5))
    assert bench.store.cooldowns() == []
    assert bench.runs()[-1].resumes == "s-1"


def test_a_refused_key_is_the_whole_batchs_trouble(bench):
    bench = bench()
    trouble = StreamError(kinds.AUTH, "invalid key", 401, retrying=True)
    task = bench.item("a", StreamState("s-1", error=trouble))
    other = bench.item("b")
    bench.work()
    (pause,) = bench.store.pauses()
    assert "claude" in pause.reason and "Log in" in pause.reason
    assert bench.task(task).state == "active" and bench.outcomes_of(task) == ["released"]
    assert bench.outcomes_of(other) == []


def test_what_the_ledger_says_comes_first(bench):
    """The agent has completed its claim itself, and then failed with errors."""
    bench = bench()

    def completes():
        token = parse_token(bench.runner.token)
        bench.store.settle([AttemptResult(token, "complete", {"by": "itself"})])
        return (StreamState("s-1", error=LIMIT), BADLY)

    task = bench.item("a", completes)
    bench.work()
    assert bench.task(task).state == "done" and bench.task(task).result == {"by": "itself"}
    assert bench.runs()[0].outcome == "settled" and bench.store.cooldowns() == []
    assert not bench.homes.exists(task)


def test_one_that_has_ended_its_claim_may_say_its_last_words(bench, monkeypatch):
    monkeypatch.setattr("hypervisor.runs.watch.HEARTBEAT", 0.0)
    bench = bench()

    def completes():
        bench.store.settle([AttemptResult(parse_token(bench.runner.token), "complete")])

    task = bench.item("a", completes, None, None, (SAID, WELL))
    bench.work()
    assert "stop" not in bench.log and bench.outcomes_of(task) == ["done"]


def test_but_not_forever(bench, monkeypatch):
    monkeypatch.setattr("hypervisor.runs.watch.HEARTBEAT", 0.0)
    monkeypatch.setattr("hypervisor.agents.watch.LAST_WORDS", 0.0)
    bench = bench()

    def completes():
        bench.store.settle([AttemptResult(parse_token(bench.runner.token), "complete")])

    task = bench.item("a", completes, *[None] * 20)
    bench.work()
    assert "stop" in bench.log and bench.outcomes_of(task) == ["done"]


def test_a_claim_that_was_revoked_ends_the_agent(bench, monkeypatch):
    monkeypatch.setattr("hypervisor.runs.watch.HEARTBEAT", 0.0)
    bench = bench()

    def released():
        bench.store.settle([AttemptResult(parse_token(bench.runner.token), "release")])

    task = bench.item("a")
    bench.in_turn("a", [released, None], [(SAID, WELL)])
    bench.work()
    assert bench.log.count("stop") == 1 and bench.outcomes_of(task) == ["released", "done"]
    assert [run.outcome for run in bench.runs()] == ["lost_claim", "completed"]


def test_a_task_that_agents_give_back_time_and_again_fails(bench):
    bench = bench()

    def gives_back():
        bench.store.settle([AttemptResult(parse_token(bench.runner.token), "release")])
        return (StreamState("s-1"), WELL)

    task = bench.item("a")
    bench.in_turn("a", *[[gives_back] for _ in range(9)])
    bench.work()
    assert bench.outcomes_of(task) == ["released"] * 3 + ["failed"]
    assert "released it 3 times without a reason" in bench.task(task).reason


def test_a_blocked_task_says_why_and_what_helps(bench):
    bench = bench()
    report = {"status": "blocked", "reason": "no key", "evidence": "line 3", "next_step": "get it"}
    task = bench.item("a", (SAID._replace(result=report), WELL))
    bench.work()
    found = bench.task(task)
    assert (found.state, found.reason, found.unblock) == ("blocked", "no key", "get it")
    assert [each.text for each in bench.store.receipts_of_task(task)] == ["line 3"]
    assert bench.homes.exists(task), "it may go on one day"


def test_nothing_done_is_tried_again_in_the_same_session(bench):
    bench = bench()
    silent = StreamState("s-1", Tokens(1, 1), ended=True, ok=True)
    task = bench.item("a", (silent, WELL), retries=1)
    bench.work()
    assert bench.task(task).reason.startswith("nothing_done: ")
    assert bench.task(task).state == "waiting" and bench.outcomes_of(task) == ["failed"]
    found = to_resume(bench.store.sessions(task=task), "claude")
    assert found is not None and found.session == "s-1"
    assert to_resume(bench.store.sessions(task=task), "codex") is None


def test_a_session_whose_home_is_gone_is_not_resumed(bench):
    bench = bench()
    task = bench.item("a", StreamState("s-1", Tokens(5, 5), error=LIMIT))
    bench.work()
    bench.store.end_cooldown(ACCOUNT, "t")
    bench.homes.remove(task)
    bench.runner.items["a"] = [(SAID, WELL)]
    bench.work()
    assert bench.runner.briefs[-1][:2] == ("do a", "")


def test_a_lost_session_costs_nothing_and_starts_over(bench):
    bench = bench()
    task = bench.item("a", StreamState("s-1", Tokens(5, 5), error=LIMIT))
    bench.work()
    bench.store.end_cooldown(ACCOUNT, "t")
    gone = StreamState("s-1", error=StreamError(kinds.RESUME, "no conversation found"), ended=True)
    bench.in_turn("a", [(gone, BADLY)], [(SAID, WELL)])
    bench.work()
    assert bench.outcomes_of(task) == ["released", "released", "done"]
    assert [run.outcome for run in bench.runs()] == ["quota", "lost_session", "completed"]
    assert [brief[1] for brief in bench.runner.briefs] == ["", "s-1", ""]


def test_a_cancel_ends_agent_session_and_home(bench):
    bench = bench()

    def cancel():
        bench.store.ask_stop(task, "cancel", "enough", "somebody")

    task = bench.item("a", cancel, None)
    bench.work()
    assert bench.task(task).state == "cancelled" and "stop" in bench.log
    assert bench.runs()[0].outcome == "stopped"
    assert not bench.homes.exists(task)


def test_the_budget_of_a_batch_pauses_it(bench):
    bench = bench(budget=250_000)
    tasks = [bench.item(text, (SAID, WELL)) for text in "abcde"]
    bench.work()
    states = [bench.task(task).state for task in tasks]
    assert states == ["done"] * 3 + ["active"] * 2
    (pause,) = bench.store.pauses()
    assert "0.30 of 0.25 USD" in pause.reason
    warning, end = bench.events("budget")
    assert "nearly used up" in warning.data["message"] and end.data["message"] == pause.reason


def test_proposals_go_into_the_result_and_are_kept_nowhere_else(bench):
    bench = bench()

    def proposes():
        propose(bench.hv, bench.runner.token, {"do": "delete", "path": "old.txt"})
        return (SAID, WELL)

    task = bench.item("a", proposes)
    bench.work()
    assert bench.task(task).result["actions"][0]["path"] == "old.txt"
    assert left_over(bench.store) == []


def test_a_budget_that_is_used_up_with_the_last_task_pauses_nothing(bench):
    bench = bench(budget=150_000)
    tasks = [bench.item(text, (SAID, WELL)) for text in "ab"]
    bench.work()
    assert [bench.task(task).state for task in tasks] == ["done"] * 2
    assert bench.store.pauses() == [], "nothing is left that could wait"


def test_the_budget_of_a_day_holds_for_all_batches(bench):
    bench = bench(agent_settings=AgentSettings(day_tokens=150))
    tasks = [bench.item(text, (SAID, WELL)) for text in "abc"]
    bench.work()
    assert [bench.task(task).state for task in tasks] == ["done", "done", "active"]
    assert "today" in bench.store.pauses()[0].reason


def test_an_agent_over_the_budget_of_its_task_is_stopped(bench):
    bench = bench(task_budget=150_000)
    task = bench.item("a", StreamState("s-1", Tokens(1, 1), 0.20), None)
    bench.work()
    assert bench.task(task).state == "failed" and "task's budget" in bench.task(task).reason
    assert bench.runner.briefs[0][2] == 150_000, "it is told what it may spend"


def test_a_fallback_takes_what_others_would_have_done(bench):
    bench = bench(agents=("claude", "codex"), fallback="codex")
    for_claude = bench.item("a", (SAID, WELL), requires=("agent:claude",))
    bench.work("codex")
    assert bench.outcomes_of(for_claude) == [], "claude's account does not rest"
    bench.store.start_cooldown(Cooldown(ACCOUNT, bench.store.now() + 60_000, 1, "limit", 0), "t")
    bench.work("codex")
    assert bench.outcomes_of(for_claude) == ["done"]
    assert bench.runs()[-1].agent == "codex"


def test_capabilities_are_the_agents_and_the_hosts(bench):
    bench = bench(settings=Settings(capabilities=("gpu",)))
    mine = bench.item("a", (SAID, WELL), requires=("agent:claude", "gpu", "mcp"))
    other = bench.item("b", (SAID, WELL), requires=("browser",))
    bench.work()
    assert (bench.outcomes_of(mine), bench.outcomes_of(other)) == (["done"], [])


def test_a_program_that_is_not_there_is_reported_before_anything_is_claimed(bench):
    bench = bench()
    task = bench.item("a")
    bench.runner.fatal_error = "claude is not installed"
    bench.work()
    assert bench.outcomes_of(task) == [] and "not installed" in bench.store.pauses()[0].reason


def test_memory_is_learned_for_the_agent(bench):
    bench = bench()
    bench.item("a", (SAID, Ended(0, None, 0.1, 300 << 20)))
    bench.work()
    assert bench.store.memory_peak(agent="claude") == 300 << 20


def test_homes_of_tasks_that_are_over_go_with_the_next_worker(bench):
    bench = bench()
    over, open_ = bench.item("a"), bench.item("b", (SAID, WELL), start_at=2**60)
    bench.store.cancel(over, "", "t")
    bench.work()
    assert not bench.homes.exists(over) and bench.homes.exists(open_)


def test_a_prompt_builds_on_what_came_before(bench):
    bench = bench()
    first = bench.item("a", (SAID, WELL))
    second = bench.item("b", (SAID, WELL), after=(first,))
    bench.work()
    from hypervisor.agents.prompts import context_of

    told = context_of(bench.store, bench.task(second))
    assert "Result of a" in told and "did it" in told


@pytest.mark.parametrize("given, expected", [({}, 900_000), ({"silence": 0}, 0)])
def test_an_agent_may_not_be_silent_forever_unless_allowed(bench, given, expected):
    bench = bench(**given)
    task = bench.task(bench.item("a"))
    assert bench.worker().attempts.limits_of(task).silence == expected
