"""The cost of agents wherever it is shown; the cooldowns of their accounts; valid specs."""

from __future__ import annotations

import json

import pytest

from hypervisor.agents import rate_limits as rate_limits
from hypervisor.agents.cooldown import Cooldown
from hypervisor.batches import submit
from hypervisor.batches.chunk_files import write_chunk
from hypervisor.batches.files import BatchFiles
from hypervisor.batches.report import report
from hypervisor.batches.summary import summary
from hypervisor.core.errors import InvalidInput
from hypervisor.monitoring.status import status
from hypervisor.queue.agent_session import NewSession, Tokens
from hypervisor.queue.context import Context
from hypervisor.queue.lease import AttemptResult
from hypervisor.queue.rescue import reap_worker
from hypervisor.runs.check_spec import check_spec
from hypervisor.runs.spec import CommandSpec
from tests.support.specs import changed, run_spec
from tests.support.submitted_runs import HERE, NOW, FakeHost, claim, hv, items, run

__all__ = ["hv"]
AGENT = run_spec("/", agent="claude", agents=("claude",), prompt="do it")
COOLDOWN = Cooldown("anthropic:0a1b2c3d", NOW + 1_000, 1, "429", NOW)


def session(hv, batch, task="", cost=None, estimated=False, outcome="completed", at=NOW):
    new = NewSession("claude", "anthropic:login", batch, HERE.id, task, 1 if task else 0)
    made = hv.store.open_session(new, at)
    hv.store.close_session(made, outcome, Tokens(100, 20, 3), cost, estimated, 2, at)


def test_the_summary_tells_what_agents_cost(hv):
    batch = run(hv, "a", "b", "c", spec=AGENT).batch.id
    first, second, third = hv.store.report(batch, "", 9, NOW)
    session(hv, batch, first.id, 250_000, outcome="stream_error")
    session(hv, batch, first.id, 500_000, True, at=NOW + 1)
    session(hv, batch, second.id, outcome="blocked")
    found = summary(hv, "b", NOW)
    assert (found.tokens, found.cost, found.estimated) == (3 * 123, 0.75, True)
    a, b, c = found.tasks
    assert (a.tokens, a.cost_micros, a.estimated, a.outcome) == (246, 750_000, True, "completed")
    assert (b.tokens, b.cost_micros, b.estimated, b.outcome) == (123, None, False, "blocked")
    assert (c.tokens, c.cost_micros, c.estimated, c.outcome) == (0, None, False, "")
    assert c.id == third.id


def test_an_agent_that_claims_by_itself_counts_for_the_batch(hv):
    batch = run(hv, "a", spec=changed(AGENT, mode="pull")).batch.id
    session(hv, batch, cost=1_000_000)
    found = summary(hv, "b", NOW)
    assert (found.tokens, found.cost, found.estimated) == (123, 1.0, False)
    assert found.tasks[0].cost_micros is None


def test_the_report_tells_it_too(hv):
    batch = run(hv, "a", spec=AGENT).batch.id
    session(hv, batch, cost=1_500_000, estimated=True)
    found = report(hv, "b", NOW)
    assert (found.what, found.tokens, found.cost, found.estimated) == ("claude", 123, 1.5, True)


def test_commands_cost_no_money(hv):
    run(hv, "a")
    found = report(hv, "b", NOW)
    assert (found.what, found.tokens, found.cost, found.estimated) == ("true", 0, None, False)


def test_a_chunk_s_files_tell_what_it_cost(hv, tmp_path):
    hv.batch_files = BatchFiles(str(tmp_path))
    spec = AGENT._replace(gate="each")
    new = [task._replace(chunk=1) for task in items("a", "b")]
    batch = submit.submit(hv, spec, new, "b", NOW, chunks=["one"]).batch
    (first,) = claim(hv)
    hv.store.settle([AttemptResult(first, "complete", result={"summary": "fine"})], NOW)
    session(hv, batch.id, first.task, 1_234_500, True)
    every = hv.store.chunks(batch.id)
    summary, details = write_chunk(hv, batch, every[0], every, NOW)
    with open(summary) as file:
        told = json.load(file)
    assert (told["cost"], told["tokens"], told["estimated"]) == (1.2345, 123, True)
    with open(details) as file:
        assert "123 tokens, cost 1.2345 USD (an estimate)" in file.read()


def test_brakes_are_listed_while_they_hold(hv):
    hv.store.start_cooldown(COOLDOWN, "w", NOW)
    assert rate_limits.cooldowns(hv, NOW) == (COOLDOWN,)
    assert status(hv, now=NOW).cooldowns == (COOLDOWN,)
    assert rate_limits.cooldowns(hv, COOLDOWN.until) == ()


def test_a_person_may_lift_one(hv):
    hv.store.start_cooldown(COOLDOWN, "w", NOW)
    assert rate_limits.end_cooldown(hv, COOLDOWN.account, NOW)
    assert rate_limits.cooldowns(hv, NOW) == ()
    assert not rate_limits.end_cooldown(hv, COOLDOWN.account, NOW)
    last = hv.store.events(0, 99)[-1]
    assert (last.kind, last.actor) == ("cooldown_end", "me")


def test_cleaning_up_after_a_worker_closes_its_sessions(hv):
    batch = run(hv, "a", spec=AGENT).batch.id
    (token,) = claim(hv)
    new = NewSession("claude", "anthropic:login", batch, HERE.id, token.task, 1)
    made = hv.store.open_session(new, NOW)
    hv.store.hear_session(made, "s-1", Tokens(1, 2, 3), 4, True, 5, NOW)
    ledger_only = Context(hv.store, FakeHost(), "me")
    held = [each for each in hv.store.holders("boot/1", NOW) if each.worker.id == HERE.id]
    assert reap_worker(ledger_only, HERE, held, NOW + 7) == [token.task]
    (ended,) = hv.store.sessions(task=token.task)
    assert (ended.outcome, ended.ended_at, ended.session) == ("crashed", NOW + 7, "s-1")
    assert (ended.tokens, ended.cost_micros, ended.estimated) == (Tokens(1, 2, 3), 4, True)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"agent": ""}, "nothing to run"),
        ({"mode": "shove"}, "mode"),
        ({"permissions": "all"}, "permissions"),
        ({"workspace": "moon"}, "workspace"),
        ({"pull": 0}, "pull"),
        ({"turns": 0}, "turns"),
        ({"budget": 0}, "budget"),
        ({"task_budget": -1}, "budget"),
        ({"tokens": 0}, "tokens"),
        ({"task_tokens": 0}, "tokens"),
        ({"fallback": "claude"}, "fallback"),
        ({"workers": 0}, "workers"),
    ],
)
def test_specs_that_make_no_sense_are_refused(wrong, said):
    with pytest.raises(InvalidInput, match=said):
        check_spec(changed(AGENT, **wrong))


@pytest.mark.parametrize("more", [{"budget": 5}, {"prompt": "do"}, {"fallback": "codex"}])
def test_commands_have_no_budget_and_so_on(more):
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        CommandSpec(("true",), **more)


def test_specs_that_make_sense():
    for more in ({}, {"mode": "pull"}, {"permissions": "full"}, {"budget": 1}, {"fallback": "x"}):
        spec = changed(AGENT, **more)
        assert check_spec(spec) == spec
