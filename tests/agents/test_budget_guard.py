"""Budgets and brakes, on a real store."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from hypervisor.agents.agent_settings import AgentSettings
from hypervisor.agents.budget_guard import BudgetGuard
from hypervisor.agents.cooldown import MARGIN, Cooldown
from hypervisor.agents.rate_limits import CooldownGuard
from hypervisor.agents.sql import budget_warnings, cooldowns
from hypervisor.agents.stream_state import QUOTA, StreamError
from hypervisor.queue.agent_session import NewSession, Tokens
from hypervisor.queue.task import NewTask
from hypervisor.runs.spec import AgentSpec, spec_data
from hypervisor.store.sqlite import SqliteDatabase
from tests.support.intercept import intercept
from tests.support.ledger import Ledger
from tests.support.specs import run_spec

ACCOUNT = "a:1"


class Books:
    def __init__(self, path):
        self.store = Ledger(SqliteDatabase(str(path), relaxed=True))
        self.batch = self.store.declare("b", spec_data(run_spec("/", agent="claude")), "t").id
        self.task = self.store.add([NewTask("x")], "b", "t").ids[0]

    def purse(self, settings=None, **spec: Any) -> BudgetGuard:
        wanted = AgentSpec("claude", **spec)
        return BudgetGuard(self.store, self.batch, wanted, settings or AgentSettings(), "w")

    def spend(self, tokens=0, micros: int | None = 0):
        new = NewSession("claude", ACCOUNT, self.batch, "w", self.task, 1)
        run = self.store.open_session(new)
        self.store.close_session(run, "completed", Tokens(tokens), micros, False, 1)

    def said(self):
        return [each.data["message"] for each in self.store.events(0, 99) if each.kind == "budget"]


@pytest.fixture
def books(tmp_path):
    made = Books(tmp_path / "store.db")
    yield made
    made.store.close()


def test_without_limits_nothing_is_counted(books):
    books.spend(10**9, 10**9)
    purse = books.purse()
    assert not purse.is_empty() and not purse.is_closed
    assert purse.over_task(books.task) is None and purse.left_for(books.task) is None


@pytest.mark.parametrize(
    "how",
    [
        {"budget": 100},
        {"tokens": 50},
        {"settings": AgentSettings(day_budget=100)},
        {"settings": AgentSettings(day_tokens=50)},
    ],
)
def test_a_limit_that_is_reached_closes_the_purse(books, how):
    purse = books.purse(**how)
    books.spend(1, 1)
    assert not purse.is_empty() and not purse.is_closed and books.said() == []
    books.spend(49, 99)
    assert purse.is_empty() and purse.is_closed
    (pause,) = books.store.pauses()
    assert "is used up" in pause.reason and books.said() == [pause.reason]
    assert purse.is_empty() and len(books.said()) == 1, "it is said once"


def test_a_warning_is_given_once_for_each_budget(books):
    books.spend(0, 90)
    for budget, warnings in ((100, 1), (100, 1), (105, 2), (1000, 2)):
        assert not books.purse(budget=budget).is_empty()
        assert len(books.said()) == warnings
    assert all("nearly used up" in said for said in books.said())


def test_runs_without_a_price_are_warned_of(books):
    books.spend(5, None)
    assert not books.purse(budget=1000).is_empty()
    assert ["no known price" in said for said in books.said()] == [True]


@pytest.mark.parametrize("how", [{"task_budget": 100}, {"task_tokens": 50}])
def test_a_task_has_limits_of_its_own(books, how):
    books.spend(49, 99)
    assert books.purse(**how).over_task(books.task) is None
    books.spend(1, 1)
    assert "is used up" in str(books.purse(**how).over_task(books.task))


def test_what_is_left_for_a_task(books):
    books.spend(0, 30)
    assert books.purse(task_budget=100).left_for(books.task) == 70
    assert books.purse(task_budget=20).left_for(books.task) == 1, "0 would be no limit"


def test_an_account_rests_until_its_brake_is_over(books):
    cooldowns = CooldownGuard(books.store, ACCOUNT, "w")
    assert not cooldowns.is_cooling(ACCOUNT)
    cooldowns.start(StreamError(QUOTA, "try again in 300s"))
    assert cooldowns.is_cooling(ACCOUNT) and not cooldowns.is_cooling("a:2")
    cooldowns.end()
    assert cooldowns.is_cooling(ACCOUNT), "an agent that had begun before may still answer"


def test_a_rest_that_is_over_is_forgotten_with_the_next_answer(books):
    books.store.start_cooldown(Cooldown(ACCOUNT, books.store.now() - 1, 1, "limit", 0), "w")
    cooldowns = CooldownGuard(books.store, ACCOUNT, "w")
    assert not cooldowns.is_cooling(ACCOUNT)
    cooldowns.end()
    assert books.store.cooldowns() == []


def test_a_rest_that_another_agent_has_just_begun_is_not_lifted(books, monkeypatch):
    store = books.store
    store.start_cooldown(Cooldown(ACCOUNT, store.now() - 1, 1, "limit", 0), "w")

    def later(lift, *args):
        store.start_cooldown(Cooldown(ACCOUNT, store.now() + 60_000, 2, "again", 0), "other")
        return lift(*args)

    intercept(monkeypatch, store, cooldowns.end_cooldown, later)
    CooldownGuard(store, ACCOUNT, "w").end()
    assert [cooldown.level for cooldown in store.cooldowns()] == [2]


def test_workers_that_come_near_a_budget_at_once_warn_of_it_once(books, monkeypatch):
    books.spend(0, 900)
    # as they all have read it
    intercept(monkeypatch, books.store, budget_warnings.warned_budget, lambda read, batch: "")
    for _ in range(3):
        books.purse(budget=1000).is_empty()
    assert len(books.said()) == 1
    books.purse(budget=1001).is_empty()
    assert len(books.said()) == 2


def test_a_time_of_day_is_that_of_the_clock_on_the_wall(books):
    later = (datetime.now().astimezone() + timedelta(hours=2)).replace(second=0, microsecond=0)
    CooldownGuard(books.store, ACCOUNT, "w").start(StreamError(QUOTA, f"resets {later:%I:%M%p}"))
    (cooldown,) = books.store.cooldowns()
    assert cooldown.until == round(later.timestamp() * 1000) + MARGIN
