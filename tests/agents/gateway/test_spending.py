"""Who may spend, and how much: claims, budgets, cooldowns. Real calls through a real gateway."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from hypervisor.agents.sql import cooldowns as cooldowns_sql
from hypervisor.agents.sql import spending
from hypervisor.queue.agent_session import Figures, Tokens
from hypervisor.queue.claim import complete, release
from hypervisor.queue.queries import events
from hypervisor.queue.sql import agent_sessions
from tests.agents.gateway.gateway_bench import AGENTS, GatewayBench
from tests.agents.real.moves import refuse, say

ITEM = "item-7"
CALL = 1200  # tokens of one call


@pytest.fixture(autouse=True)
def answers(model):
    model.script(ITEM, lambda turn: say("hello", tokens=(1000, 200, 0)))


def refusal(gateway, session):
    return gateway.hv.store.read(spending.refusal, session.id)


# Claims


def test_a_token_dies_with_its_claim(gateway, model):
    session = gateway.session()
    assert gateway.ask(session).status == 200
    release(gateway.hv, session.claim)
    answer = gateway.ask(session)
    assert (answer.status, answer.message) == (
        403,
        "Hypervisor: this attempt has ended (released)",
    )
    assert refusal(gateway, session) == ("claim", "this attempt has ended (released)")
    assert len(model.bodies) == 1


def test_a_token_dies_with_its_session(gateway, model):
    session = gateway.session()
    close = agent_sessions.close
    gateway.hv.store.write(close, session.id, "stopped", Figures(), now=gateway.hv.now())
    assert gateway.ask(session).message == "Hypervisor: this attempt has ended"
    assert not model.bodies


def test_a_token_dies_with_its_worker_before_anybody_has_noticed(gateway, model):
    worker = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    session = gateway.session(pid=worker.pid)
    assert gateway.ask(session).status == 200
    worker.kill()
    worker.wait()
    assert gateway.ask(session).message == "Hypervisor: the worker of this attempt is gone"
    assert len(model.bodies) == 1


def test_the_last_message_after_the_claim_was_completed(gateway):
    session = gateway.session()
    complete(gateway.hv, session.claim)
    assert gateway.ask(session).status == 200
    gateway.hv.store.write(lambda s: s.run("UPDATE attempts SET ended_at = ended_at - 11000"))
    assert gateway.ask(session).message == "Hypervisor: this attempt has ended (done)"


@pytest.mark.parametrize("change", ["", "x", "hvg-000000000000-", "another"])
def test_a_guessed_token_is_refused(gateway, model, change):
    session, other = gateway.session(), gateway.session()
    code = other.token.rpartition("-")[2]
    token = f"hvg-{session.id}-{code}" if change == "another" else change
    answer = gateway.ask(token)
    assert (answer.status, answer.message) == (403, "Hypervisor: unknown spending token")
    assert not model.bodies


def test_the_store_does_not_know_the_code(gateway):
    session = gateway.session()
    rows = gateway.hv.store.read(lambda s: s.rows("SELECT * FROM sessions"))
    assert session.token.rpartition("-")[2] not in str(rows)


# Budgets


@pytest.mark.parametrize("wire", AGENTS)
def test_a_task_exceeds_its_tokens_by_one_call_at_most(gateway, model, wire):
    session = gateway.session(AGENTS[wire], task_tokens=3 * CALL - 100)
    answers = [gateway.ask(session, wire) for _ in range(6)]
    assert [answer.status for answer in answers] == [200] * 3 + [403] * 3
    assert "the token limit of the task is used up: 3,600 of 3,500" in answers[-1].message
    assert len(model.bodies) == 3
    kind, reason = refusal(gateway, session)
    assert kind == "task" and reason.startswith("the token limit of the task is used up")


def test_a_budget_in_money_is_shown_in_money(gateway):
    session = gateway.session(task_budget=10_000)  # a call costs 1000 · 4 + 200 · 20 = 8,000
    assert [gateway.ask(session).status for _ in range(3)] == [200, 200, 403]
    assert "the task's budget is used up: 0.0160 of 0.01 USD" in refusal(gateway, session)[1]


def test_calls_at_the_same_time_do_not_add_up_beyond_it(gateway, model):
    """Agents make calls in parallel: those in flight are not counted yet."""
    session = gateway.session(task_tokens=5 * CALL - 100)
    statuses: Counter[int] = Counter()

    def ask():
        statuses[gateway.ask(session).status] += 1

    threads = [threading.Thread(target=ask) for _ in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert statuses == {200: 5, 403: 19}
    assert len(model.bodies) == 5 and gateway.spent(session).tokens == 5 * CALL


def test_a_new_attempt_goes_on_with_what_is_left(gateway):
    session = gateway.session(task_tokens=2 * CALL - 100)
    assert gateway.ask(session).status == 200
    again = gateway.another("claude", session.batch, session.claim)
    assert [gateway.ask(again).status for _ in range(2)] == [200, 403]


def test_the_budget_of_the_batch_stops_all_its_agents(gateway):
    session = gateway.session(tokens=2 * CALL - 100)
    other = gateway.another("claude", session.batch, session.claim)
    assert [gateway.ask(each).status for each in (session, other, session)] == [200, 200, 403]
    assert refusal(gateway, session)[0] == "batch"
    assert gateway.ask(gateway.session()).status == 200, "another batch goes on"


def test_the_budget_of_the_day_stops_everything(tmp_path, model):
    bench = GatewayBench(tmp_path, model, "[budget]\nday_tokens = 2000\n")
    try:
        assert [bench.ask(bench.session()).status for _ in range(3)] == [200, 200, 403]
    finally:
        bench.close()


def test_figures_of_the_agent_do_not_replace_those_of_the_gateway(gateway):
    session = gateway.session()
    assert gateway.ask(session).status == 200
    gateway.spent(session)
    store, wrong = gateway.hv.store, Figures(Tokens(1, 1), 5, True, 3)
    store.write(agent_sessions.update, session.id, "s-1", wrong)
    (row,) = store.read(agent_sessions.sessions, task=session.task)
    assert (row.tokens, row.cost_micros, row.turns) == ((1000, 200, 0), 8_000, 3)
    exact = Figures(Tokens(1, 1), 7_000, False, 4)
    store.write(agent_sessions.close, session.id, "completed", exact, now=store.now())
    (row,) = store.read(agent_sessions.sessions, task=session.task)
    assert (row.tokens, row.cost_micros, row.estimated) == ((1000, 200, 0), 7_000, False)
    (event,) = [each for each in events(gateway.hv) if each.kind == "session_end"]
    assert (event.data["tokens"], event.data["cost_micros"]) == (1200, 7_000)


# Rate limits


def limits(*moves):
    """The given answers first, then good ones."""
    rest = list(moves)
    return lambda turn: rest.pop(0) if rest else say("hello", tokens=(1000, 200, 0))


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_one_cooldown_for_the_account_until_the_time_that_was_announced(gateway, model, form):
    at = datetime.now(UTC) + timedelta(seconds=300)
    after = 300 if form == "seconds" else format_datetime(at, usegmt=True)
    model.scripts[:] = []
    model.script(ITEM, lambda turn: refuse(429, after, error="slow down"))
    session, other = gateway.session(), gateway.session()
    answers = [gateway.ask(each) for each in (session, other, session)]
    assert [answer.status for answer in answers] == [403] * 3
    assert "anthropic is rate-limited until" in answers[0].message
    assert len(model.bodies) == 1, "nobody asks the provider again"
    assert refusal(gateway, session)[0] == refusal(gateway, other)[0] == "quota"
    (cooldown,) = gateway.hv.store.read(cooldowns_sql.every)
    assert abs(cooldown.until - at.timestamp() * 1000) < 30_000
    assert len([e for e in events(gateway.hv) if e.kind == "cooldown"]) == 1


@pytest.mark.parametrize(("status", "after"), [(429, 1), (529, 1), (503, 1)])
def test_a_short_cooldown_is_waited_for(gateway, model, status, after):
    model.scripts[:] = []
    model.script(ITEM, limits(refuse(status, after, error="busy")))
    session = gateway.session()
    answer = gateway.ask(session)
    assert answer.status == 200 and len(model.bodies) == 2
    assert gateway.spent(session).tokens == CALL
    assert refusal(gateway, session) is None


def test_other_errors_are_passed_on(gateway, model):
    model.scripts[:] = []
    model.script(ITEM, lambda turn: refuse(400, error="what is this"))
    session = gateway.session()
    answer = gateway.ask(session)
    assert (answer.status, answer.message) == (400, "what is this")
    assert gateway.spent(session).tokens == 0
