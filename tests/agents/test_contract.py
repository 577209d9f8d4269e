"""What the ledger guarantees about agents, one example each, on both databases."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hypervisor.agents.cooldown import Cooldown
from hypervisor.agents.sql.cooldowns import NEWS
from hypervisor.core.errors import NotFound
from hypervisor.queue.agent_session import AgentSession, NewSession, Spent, Tokens
from hypervisor.queue.event import Cursor
from hypervisor.queue.lease import Usage, Worker
from hypervisor.runs.spec import ActiveWorker
from tests.support.databases import dump
from tests.support.given import ANN, BOB, NOW, SECOND

NEW = NewSession("claude", "anthropic:0a1b2c3d", "b00000000001", "w-ann", "t00000000001", 2)
COOLDOWN = Cooldown("anthropic:0a1b2c3d", NOW + 30 * SECOND, 1, "429: slow down", NOW)


def last_event(ledger):
    return ledger.events(0, 10_000)[-1]


# Sessions


def test_a_session_from_its_start_to_its_end(ledger, open_ledger):
    made = ledger.open_session(NEW._replace(resumes="s-0"), NOW)
    [begun] = open_ledger().sessions()
    assert len(made) == 12 and made.isalnum()
    assert begun == AgentSession(
        made,
        "claude",
        NEW.account,
        NEW.batch,
        "w-ann",
        NEW.task,
        2,
        "s-0",
        "",
        NOW,
        None,
        None,
        Tokens(),
        None,
        False,
        0,
    )
    event = last_event(ledger)
    assert (event.kind, event.task, event.batch, event.attempt, event.actor) == (
        "session",
        NEW.task,
        NEW.batch,
        2,
        "w-ann",
    )
    assert event.data == {"id": made, "agent": "claude", "resumes": "s-0"}
    ledger.hear_session(made, "s-1", Tokens(10, 5, 3), 2_500, True, 1, NOW + 1)
    [heard] = open_ledger().sessions(task=NEW.task)
    assert heard == begun._replace(
        session="s-1", tokens=Tokens(10, 5, 3), cost_micros=2_500, estimated=True, turns=1
    )
    ledger.close_session(made, "completed", Tokens(20, 9, 4), 4_000, False, 2, NOW + 9)
    [ended] = open_ledger().sessions(worker="w-ann")
    assert ended == heard._replace(
        ended_at=NOW + 9,
        outcome="completed",
        tokens=Tokens(20, 9, 4),
        cost_micros=4_000,
        estimated=False,
        turns=2,
    )
    assert (last_event(ledger).kind, last_event(ledger).data) == (
        "session_end",
        {"id": made, "agent": "claude", "outcome": "completed", "tokens": 33, "cost_micros": 4000},
    )


def test_the_tools_that_were_refused_stay_with_the_session(ledger, open_ledger):
    made = ledger.open_session(NEW, NOW)
    tools = ("Bash", 'odd "name"')
    ledger.close_session(made, "completed", Tokens(), None, False, 1, NOW, denied=tools)
    [ended] = open_ledger().sessions()
    assert ended.denied == tools
    assert last_event(ledger).data["denied"] == list(tools)


def test_what_an_attempt_cost_can_be_told_after_its_end(ledger, add, claim, settle):
    task = add("a")
    token = claim()
    settle(token, "complete")
    ledger.record_usage(token, Usage(0, 250, 1_024, 9))
    (attempt,) = ledger.detail(task).attempts
    assert (attempt.outcome, attempt.cpu_ms, attempt.peak_kb) == ("done", 250, 1_024)
    ledger.record_usage(token._replace(nonce="zzzz"), Usage(1, 1, 1, 1))
    assert ledger.detail(task).attempts == (attempt,), "a token that never was changes nothing"


def test_what_is_heard_twice_counts_once_and_its_name_stays(store, ledger):
    made = ledger.open_session(NEW, NOW)
    ledger.hear_session(made, "s-1", Tokens(10, 5), None, False, 1, NOW)
    before = dump(store)
    ledger.hear_session(made, "", Tokens(10, 5), None, False, 1, NOW + 1)
    assert dump(store) == before


def test_once_closed_a_session_stays_as_it_is(store, ledger):
    made = ledger.open_session(NEW, NOW)
    ledger.close_session(made, "quota", Tokens(1, 1), None, False, 1, NOW + 1)
    before = dump(store)
    ledger.hear_session(made, "late", Tokens(9, 9), 9, False, 9, NOW + 2)
    ledger.close_session(made, "crashed", Tokens(9, 9), 9, False, 9, NOW + 2)
    ledger.close_session("000000000000", "crashed", Tokens(), None, False, 0, NOW + 2)
    assert dump(store) == before


def test_sessions_are_found_by_what_they_belong_to_newest_first(ledger):
    first = ledger.open_session(NEW, NOW)
    second = ledger.open_session(NEW._replace(task="t00000000002", worker="w-bob"), NOW + 1)
    third = ledger.open_session(NEW._replace(batch="b00000000002", task="", attempt=0), NOW + 2)
    assert [s.id for s in ledger.sessions()] == [third, second, first]
    assert [s.id for s in ledger.sessions(limit=2)] == [third, second]
    assert [s.id for s in ledger.sessions(batch=NEW.batch)] == [second, first]
    assert [s.id for s in ledger.sessions(task=NEW.task)] == [first]
    assert [s.id for s in ledger.sessions(worker="w-ann")] == [third, first]
    assert [s.id for s in ledger.sessions(batch=NEW.batch, worker="w-ann")] == [first]
    assert ledger.sessions(task="") == [] == ledger.sessions(batch="b00000000003")


def test_nothing_was_spent_on_nothing(ledger):
    assert ledger.spent() == ledger.spent("b", "t", NOW) == Spent(0, 0, False, 0)


def test_a_price_that_nobody_knows_is_reported_once_there_is_something_to_pay(ledger):
    made = ledger.open_session(NEW, NOW)
    assert ledger.spent() == Spent(0, 0, False, 0)
    ledger.hear_session(made, "", Tokens(1, 0, 0), None, False, 1, NOW)
    assert ledger.spent() == Spent(1, 0, False, 1)
    ledger.hear_session(made, "", Tokens(1, 0, 0), 0, True, 1, NOW)
    assert ledger.spent() == Spent(1, 0, False, 0), "nothing of the money is estimated"


def test_a_task_s_report_says_what_agents_cost_and_how_the_last_came_out(ledger, add):
    batch = ledger.declare("b", {"cwd": "/", "agent": "claude"}, "me", NOW).id
    first, second, third = add("a", "b", "c", batch="b")
    for at, task, tokens, cost, estimated, outcome in [
        (NOW, first, Tokens(1, 2, 3), 10, False, "stream_error"),
        (NOW + 1, first, Tokens(4, 5), 20, True, "completed"),
        (NOW + 2, second, Tokens(7), None, False, "blocked"),
    ]:
        made = ledger.open_session(NEW._replace(batch=batch, task=task), at)
        ledger.close_session(made, outcome, tokens, cost, estimated, 1, at)
    rows = ledger.report(batch, "", 9, NOW)
    costs = {row.id: (row.tokens, row.cost_micros, row.estimated, row.outcome) for row in rows}
    assert costs == {
        first: (15, 30, True, "completed"),
        second: (7, None, False, "blocked"),
        third: (0, None, False, ""),
    }


def test_a_session_is_settled_with_all_tasks_that_its_worker_claimed(ledger, add, claim, settle):
    batch = ledger.declare("b", {"cwd": "/", "agent": "claude"}, "me", NOW).id
    add("a", "b", batch="b")
    mine = ledger.open_session(NEW._replace(batch=batch, task="", worker=ANN.id), NOW)
    other = ledger.open_session(NEW._replace(batch=batch, task="", worker=BOB.id), NOW)
    first = claim()
    assert ledger.settled_sessions([mine, other]) == set()
    for each in (mine, other):
        ledger.close_session(each, "completed", Tokens(), None, False, 0, NOW)
    assert ledger.settled_sessions([mine, other, "000000000000"]) == {other}
    settle(first, "complete")
    assert ledger.settled_sessions([mine]) == {mine}
    assert ledger.settled_sessions([]) == set()


AMOUNTS = st.integers(0, 1 << 40)
SESSIONS = st.tuples(
    st.sampled_from(["b1", "b2"]),
    st.sampled_from(["", "t1", "t2"]),
    st.integers(0, 5),
    st.builds(Tokens, AMOUNTS, AMOUNTS, AMOUNTS),
    st.none() | AMOUNTS,
    st.booleans(),
    st.booleans(),
)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    made=st.lists(SESSIONS, max_size=12),
    of=st.sampled_from([None, "b1", "b2", "b3"]),
    task=st.sampled_from([None, "t1", "t2", "t3"]),
    since=st.integers(0, 6),
)
def test_sessions_add_up(store, ledger, made, of, task, since):
    store.wipe()
    for batch, of_task, at, tokens, cost, estimated, ends in made:
        id = ledger.open_session(NEW._replace(batch=batch, task=of_task), NOW + at)
        tell = (tokens, cost, estimated, 1, NOW + at)
        ledger.close_session(id, "completed", *tell) if ends else ledger.hear_session(id, "", *tell)
    counted = [
        (tokens, cost, estimated)
        for batch, of_task, at, tokens, cost, estimated, _ in made
        if of in (None, batch) and task in (None, of_task) and at >= since
    ]
    assert ledger.spent(of, task, NOW + since) == Spent(
        sum(sum(tokens) for tokens, _, _ in counted),
        sum(cost or 0 for _, cost, _ in counted),
        any(estimated and cost for _, cost, estimated in counted),
        sum(cost is None and sum(tokens) > 0 for tokens, cost, _ in counted),
    )


# Brakes


def test_an_account_is_braked_and_the_event_says_so_in_one_line(ledger, open_ledger):
    ledger.start_cooldown(COOLDOWN, "w-ann", NOW)
    assert open_ledger().cooldowns() == [COOLDOWN]
    event = last_event(ledger)
    assert (event.kind, event.actor, event.at) == ("cooldown", "w-ann", NOW)
    assert event.data["message"] == "anthropic is rate-limited until 08:00:30 UTC: 429: slow down"
    assert event.data["until"] == COOLDOWN.until


def test_the_same_limit_met_by_many_is_one_brake(store, ledger, open_ledger):
    ledger.start_cooldown(COOLDOWN, "w-ann", NOW)
    before = dump(store)
    open_ledger().start_cooldown(COOLDOWN, "w-bob", NOW + 1)
    open_ledger().start_cooldown(
        COOLDOWN._replace(until=COOLDOWN.until - 1, level=2), "w-bob", NOW + 1
    )
    open_ledger().start_cooldown(
        COOLDOWN._replace(until=COOLDOWN.until + NEWS - 1), "w-bob", NOW + 1
    )
    assert dump(store) == before


def test_a_longer_rest_replaces_a_shorter_one(ledger):
    ledger.start_cooldown(COOLDOWN, "w-ann", NOW)
    longer = COOLDOWN._replace(until=COOLDOWN.until + NEWS, level=2, reason="again")
    ledger.start_cooldown(longer, "w-bob", NOW + 1)
    other = COOLDOWN._replace(account="openai:login")
    ledger.start_cooldown(other, "w-bob", NOW + 2)
    assert ledger.cooldowns() == [longer, other]
    assert [e.kind for e in ledger.events(0, 9)] == ["cooldown"] * 3


def test_a_brake_is_lifted_once(ledger, open_ledger):
    ledger.start_cooldown(COOLDOWN, "w-ann", NOW)
    assert open_ledger().end_cooldown(COOLDOWN.account, "me", NOW + 1)
    assert ledger.cooldowns() == []
    assert (last_event(ledger).kind, last_event(ledger).data) == (
        "cooldown_end",
        {"account": COOLDOWN.account},
    )
    assert not ledger.end_cooldown(COOLDOWN.account, "me", NOW + 2)
    assert len(ledger.events(0, 9)) == 2


# Claims by their token


@pytest.mark.parametrize(
    ("event", "outcome"),
    [("complete", "done"), ("fail", "failed"), ("block", "blocked"), ("release", "released")],
)
def test_how_a_claim_ended(ledger, add, claim, settle, event, outcome):
    add("a")
    token = claim()
    assert ledger.ended_claim(token) is None
    settle(token, event, reason="so")
    assert ledger.ended_claim(token) == outcome
    if event == "release":
        assert ledger.ended_claim(claim()) is None, "the next one runs"
        assert ledger.ended_claim(token) == outcome


def test_a_claim_that_never_was(ledger, add, claim):
    add("a")
    token = claim()
    with pytest.raises(NotFound):
        ledger.ended_claim(token._replace(nonce="zzzz"))


# Workers


def test_a_worker_says_which_agent_it_runs(ledger):
    worker = Worker("w-run", "worker-7", "here", "boot1", 107, 3)
    ledger.register(worker, "b1", NOW, "codex")
    assert ledger.at_work("boot1") == [ActiveWorker(worker, "b1", NOW, "codex")]
    ledger.register(worker, "b1", NOW)
    assert ledger.at_work("boot1") == [ActiveWorker(worker, "b1", NOW, "")]


# Cursors


def test_cursors_keep_what_was_read(ledger, open_ledger):
    assert ledger.cursor("mail") == 0 and ledger.cursors() == []
    ledger.move_cursor("mail", 7, NOW)
    ledger.move_cursor("log", 3, NOW + 1)
    ledger.move_cursor("mail", 9, NOW + 2)
    other = open_ledger()
    assert (other.cursor("mail"), other.cursor("log"), other.cursor("no")) == (9, 3, 0)
    assert other.cursors() == [Cursor("log", 3, NOW + 1), Cursor("mail", 9, NOW + 2)]
    assert ledger.events(0, 9) == []
