"""The rows of agent sessions: what is written when, what is resumed, what is counted."""

from __future__ import annotations

import pytest

from hypervisor.agents.session import OVER, releases_in_a_row, to_resume
from hypervisor.agents.session_recorder import SessionRecorder, close_orphans
from hypervisor.agents.stream_state import StreamState
from hypervisor.core.errors import StoreUnavailable
from hypervisor.queue.agent_session import AgentSession, NewSession, Tokens
from hypervisor.queue.sql import agent_sessions
from hypervisor.queue.task import Attempt
from hypervisor.store.sqlite import SqliteDatabase
from tests.support.intercept import intercept
from tests.support.ledger import Ledger

NO_TOKENS = Tokens()


@pytest.fixture
def books(tmp_path):
    made = Ledger(SqliteDatabase(str(tmp_path / "store.db"), relaxed=True))
    yield made
    made.close()


def row(books):
    return SessionRecorder(books, NewSession("claude", "a:1", "b", "w", "t", 1), None)


def run(outcome="stopped", session="s", resumes="", attempt=1, tokens=NO_TOKENS):
    return AgentSession(
        "i",
        "claude",
        "a",
        "b",
        "w",
        "t",
        attempt,
        resumes,
        session,
        0,
        1,
        outcome,
        tokens,
        0,
        False,
        0,
    )


def attempt(number, outcome):
    return Attempt(number, "w", 0, None if outcome is None else 1, outcome, None)


def test_a_name_is_written_at_once_and_figures_now_and_then(books):
    open_row = row(books)

    def hear(session, tokens, now):
        open_row.update(StreamState(session, Tokens(tokens)), now)
        (found,) = books.sessions()
        return found.session, found.tokens.input

    assert hear("", 1, 100.0) == ("", 1)
    assert hear("s", 2, 100.5) == ("s", 2)
    assert hear("s", 3, 100.9) == ("s", 2), "half a second later"
    assert hear("s", 4, 101.5) == ("s", 4)
    assert hear("t", 5, 101.6) == ("t", 5)


def test_what_does_not_change_is_not_written(books, monkeypatch):
    open_row, written = row(books), []
    intercept(monkeypatch, books, agent_sessions.update, lambda really, *told: written.append(told))
    for now in (100.0, 200.0):
        open_row.update(StreamState("s", Tokens(1)), now)
    assert len(written) == 1


def test_a_close_tells_the_last_figures_and_a_name_that_came_late(books):
    open_row = row(books)
    open_row.close("completed", StreamState("late", Tokens(7, 8), 0.5, 3))
    (found,) = books.sessions()
    assert (found.session, found.outcome, found.tokens) == ("late", "completed", Tokens(7, 8))
    assert (found.cost_micros, found.turns) == (500_000, 3)


def test_a_session_that_leads_nowhere_is_given_up():
    crashed = run("crashed", resumes="s")
    assert to_resume([crashed], "claude") is None
    for better in (
        crashed._replace(tokens=Tokens(1, 1)),
        crashed._replace(outcome="quota"),
        crashed._replace(outcome=None),
        crashed._replace(resumes=""),
    ):
        assert to_resume([better], "claude") == better
    unnamed, named = run("quota", ""), run("stopped")
    assert to_resume([unnamed, named], "claude") == named
    assert to_resume([unnamed], "claude") is None
    assert to_resume([named], "codex") is None


@pytest.mark.parametrize("outcome", OVER)
def test_a_session_that_is_over_is_not_gone_on_with(outcome):
    worked = run(outcome, tokens=Tokens(1, 1))
    assert to_resume([worked, run("stopped")], "claude") is None


@pytest.mark.parametrize(
    "outcomes, ended_by_themselves, times",
    [
        ([], (), 0),
        (["released", "released", None], (1, 2), 2),
        (["released", "released", None], (2,), 1),  # the first was put back by us
        (["released", "failed", "released"], (1, 2, 3), 1),
        (["done"], (1,), 0),
    ],
)
def test_how_often_agents_gave_a_task_back(outcomes, ended_by_themselves, times):
    runs = [
        run("settled" if number in ended_by_themselves else "quota", attempt=number)
        for number in range(1, len(outcomes) + 1)
    ]
    attempts = [attempt(number, outcome) for number, outcome in enumerate(outcomes, 1)]
    assert releases_in_a_row(runs, attempts) == times


def test_runs_of_killed_workers_are_closed_with_what_they_had_used(books):
    killed, ended = row(books), row(books)
    killed.update(StreamState("s", Tokens(3, 4), 0.25, 2), 100.0)
    ended.close("completed", StreamState("t"))
    close_orphans(books, books.sessions())
    found = {each.session: each for each in books.sessions()}
    assert (found["s"].outcome, found["t"].outcome) == ("crashed", "completed")
    assert (found["s"].tokens, found["s"].cost_micros, found["s"].turns) == (
        Tokens(3, 4),
        250_000,
        2,
    )


def test_a_store_that_is_away_ends_the_closing_quietly(books, monkeypatch):
    row(books), row(books)
    asked = []

    def away(*told, **when):
        asked.append(told)
        raise StoreUnavailable("away")

    intercept(monkeypatch, books, agent_sessions.close, away)
    close_orphans(books, books.sessions())
    assert len(asked) == 1
