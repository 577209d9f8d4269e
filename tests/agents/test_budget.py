"""Money and tokens."""

import pytest

from hypervisor.agents.budget import (
    batch_limits,
    day_limits,
    near,
    over,
    price_of,
    task_limits,
    uncounted,
)
from hypervisor.agents.builtin_profiles import BUILTIN
from hypervisor.agents.profile import Price
from hypervisor.agents.session import cost_micros, resumed
from hypervisor.agents.stream_state import StreamState
from hypervisor.core.text import money, money_text
from hypervisor.queue.agent_session import AgentSession, Spent, Tokens
from hypervisor.runs.spec import AgentSpec

CLAUDE, CODEX, COPILOT = BUILTIN["claude"], BUILTIN["codex"], BUILTIN["copilot"]

SPEC = AgentSpec("claude")
NOTHING = Spent()


def over_batch(spent, spec, day=NOTHING, day_budget=None, day_tokens=None):
    return over([*batch_limits(spent, spec), *day_limits(day, day_budget, day_tokens)])


def near_batch(spent, spec):
    return near(batch_limits(spent, spec))


def over_task(spent, spec):
    return over(task_limits(spent, spec))


def test_what_the_stream_tells_is_not_an_estimate():
    assert cost_micros(StreamState(cost=0.0132), Price(1, 1)) == (13_200, False)
    assert cost_micros(StreamState(cost=0.0), None) == (0, False)


def test_what_the_table_tells_is_one():
    state = StreamState(tokens=Tokens(1_000_000, 100_000, 500_000))
    assert cost_micros(state, Price(1.25, 10.0, 0.125)) == (2_312_500, True)
    assert cost_micros(state, None) == (None, False)


@pytest.mark.parametrize("cost", [float("nan"), float("inf"), -1.0])
def test_a_cost_that_cannot_be(cost):
    assert cost_micros(StreamState(cost=cost), None) == (None, False)


def test_the_table_comes_before_the_profile_and_the_model_before_the_agent():
    own = {"codex": Price(1, 1), "gpt-x": Price(2, 2)}
    assert price_of(CODEX, "", {}) == CODEX.price
    assert price_of(CODEX, "", own) == Price(1, 1)
    assert price_of(CODEX, "gpt-x", own) == Price(2, 2)
    assert price_of(CODEX._replace(model="gpt-x"), "", own) == Price(2, 2)
    assert price_of(COPILOT, "", {}) is None
    assert price_of(CLAUDE, "", own) == CLAUDE.price


def test_a_budget_is_used_up():
    spec = SPEC._replace(budget=1_000_000)
    assert over_batch(Spent(0, 999_999), spec) is None
    assert over_batch(Spent(0, 1_000_000), spec) == (
        "the batch's budget is used up: 1.00 of 1.00 USD. "
        "To continue, run it again with a larger budget; nothing is lost."
    )
    assert "1.20 of 1.00 USD (an estimate)" in str(over_batch(Spent(0, 1_200_000, True), spec))
    assert over_batch(Spent(10**9, 10**12), SPEC) is None


def test_tokens_and_days():
    assert "is used up: 5,000 of 5,000" in str(
        over_batch(Spent(5_000), SPEC._replace(tokens=5_000))
    )
    assert "today's budget" in str(over_batch(Spent(), SPEC, Spent(0, 7), 7))
    assert "[budget]" in str(over_batch(Spent(), SPEC, Spent(7), None, 7))
    assert over_batch(Spent(), SPEC, Spent(6, 6), 7, 7) is None


def test_a_warning_at_four_fifths():
    spec = SPEC._replace(budget=1_000_000)
    assert near_batch(Spent(0, 799_999), spec) is None
    assert (
        near_batch(Spent(0, 800_000), spec)
        == "the batch's budget is nearly used up: 0.80 of 1.00 USD."
    )
    assert "no known price" in str(uncounted(Spent(unpriced=2), spec))
    assert uncounted(Spent(unpriced=2), SPEC) is None


def test_a_budget_of_nothing_lets_nothing_start():
    assert over_batch(Spent(), SPEC._replace(budget=0)) is not None
    assert over_task(Spent(), SPEC._replace(task_tokens=0)) is not None


def test_a_task():
    spec = SPEC._replace(task_budget=100_000, task_tokens=1_000)
    assert over_task(Spent(999, 99_999), spec) is None
    assert "the task's budget is used up: 0.10 of 0.10 USD" in str(
        over_task(Spent(0, 100_000), spec)
    )
    assert "1,000 of 1,000" in str(over_task(Spent(1_000), spec))
    assert over_task(Spent(10**9, 10**9), SPEC) is None


@pytest.mark.parametrize(
    "micros, text", [(1_000_000, "1.00"), (4_200, "0.0042"), (0, "0.00"), (1_234_560, "1.2346")]
)
def test_money_for_people(micros, text):
    assert money_text(micros) == f"{text} USD"


@pytest.mark.parametrize("text", ["2.50", "$2.50", "2.5 USD", " 2.50USD "])
def test_money_by_people(text):
    assert money(text) == 2_500_000


def test_a_resumed_run_begins_with_what_its_session_had_used():
    def run(session, tokens, cost, estimated=False):
        return AgentSession(
            "i",
            "codex",
            "a",
            "b",
            "w",
            "t",
            1,
            "",
            session,
            0,
            1,
            "stopped",
            tokens,
            cost,
            estimated,
            1,
        )

    runs = [
        run("s", Tokens(10, 1, 2), 500),
        run("x", Tokens(99, 9, 9), 900),
        run("s", Tokens(5, 1, 0), None),
        run("s", Tokens(), 700, True),
    ]
    state = resumed(runs, "s")
    assert (state.session, state.tokens_before, state.cost_before) == (
        "s",
        Tokens(15, 2, 2),
        0.0005,
    )
    assert state.tokens == Tokens()
