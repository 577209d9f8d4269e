"""Claims on both databases: who gets what in which order, stale tokens, leases."""

from __future__ import annotations

import pytest

from hypervisor.core.errors import LeaseLost, WrongState
from hypervisor.queue.lane import ClaimFilter
from hypervisor.queue.lease import AttemptResult, ClaimRequest, Token, parse_token
from hypervisor.queue.sql import claims
from hypervisor.queue.sql import take_over as sql
from hypervisor.queue.task import NewTask
from tests.support.databases import dump
from tests.support.given import ANN, BOB, LEASE, NOW, WEEK, claim_all, titles

# Order


def test_priority_goes_first_then_age(ledger, add):
    add("old", at=NOW)
    add(NewTask("low", priority="low"), at=NOW + 1)
    add(NewTask("high", priority="high"), at=NOW + 2)
    add("young", at=NOW + 3)
    add(NewTask("critical", priority="critical"), at=NOW + 4)
    assert claim_all(ledger) == ["critical", "high", "old", "young", "low"]


def test_tasks_of_one_call_keep_their_order(ledger, add):
    add(*[f"task {n}" for n in range(50)])
    assert claim_all(ledger) == [f"task {n}" for n in range(50)]


def test_low_is_not_starved_forever(ledger, add):
    add(NewTask("low", priority="low"), at=NOW)
    add("just before the week is over", at=NOW + WEEK - 1)
    add("after the week", at=NOW + WEEK + 1)
    assert claim_all(ledger) == ["just before the week is over", "low", "after the week"]


def test_a_claim_takes_no_more_than_asked_and_each_task_once(ledger, add):
    add(*"abcde")
    first = ledger.claim(ClaimRequest(ANN, 2, LEASE), NOW)
    second = ledger.claim(ClaimRequest(BOB, 9, LEASE), NOW)
    assert titles(first) == ["a", "b"] and titles(second) == ["c", "d", "e"]
    assert ledger.claim(ClaimRequest(ANN, 1, LEASE), NOW) == []


def test_a_lease_names_the_task_and_its_end(ledger, add):
    task = add(NewTask("a", body="text", data={"n": [1]}, requires=("gpu",)))
    [lease] = ledger.claim(ClaimRequest(ANN, 1, LEASE, ClaimFilter(capabilities=("gpu",))), NOW)
    assert lease.until == NOW + LEASE
    assert (lease.task.id, lease.task.body, lease.task.data) == (task, "text", {"n": [1]})
    task = lease.task
    assert (task.state, task.attempts, task.requires) == ("in_progress", 1, ("gpu",))


# Filters


def test_filter_by_batch(ledger, add):
    add("none")
    add("in first", batch="first")
    add("in second", batch="second")
    assert claim_all(ledger, batch=ledger.batch("second").id) == ["in second"]
    assert claim_all(ledger, batch="") == ["none"]
    assert claim_all(ledger) == ["in first"]


def test_filter_by_type(ledger, add):
    add(*[NewTask(kind, type=kind) for kind in ("review", "build", "test")])
    assert claim_all(ledger, types=("test", "review")) == ["review", "test"]
    assert claim_all(ledger, types=("nothing",)) == []


def test_filter_by_branch(ledger, add):
    add("none", NewTask("main", branch="main"))
    assert claim_all(ledger, branch="main") == ["main"]
    assert claim_all(ledger, branch="main") == []


def test_filter_by_priority(ledger, add):
    add(*[NewTask(level, priority=level) for level in ("low", "medium", "high", "critical")])
    assert claim_all(ledger, priorities=("low", "high")) == ["high", "low"]


def test_filter_by_capabilities(ledger, add):
    add("plain", NewTask("gpu", requires=("gpu",)), NewTask("both", requires=("gpu", "net")))
    assert claim_all(ledger) == ["plain"]
    assert claim_all(ledger, capabilities=("gpu", "disk")) == ["gpu"]
    assert claim_all(ledger, capabilities=("net", "gpu")) == ["both"]


def test_an_assigned_task_is_only_for_its_assignee(ledger, add):
    add("anybody's", NewTask("ann's", assignee="ann"), NewTask("bob's", assignee="bob"))
    assert claim_all(ledger, BOB, assignee="bob") == ["bob's"]
    assert claim_all(ledger, ANN) == ["anybody's", "ann's"]


def test_the_inbox_is_never_claimable_until_accepted(ledger, add):
    task = add(NewTask("idea", inbox=True))
    assert claim_all(ledger) == []
    assert ledger.accept(task, "me", NOW) == "active"
    assert claim_all(ledger) == ["idea"]
    with pytest.raises(WrongState):
        ledger.accept(task, "me", NOW)


# Fencing


def stale(how, ledger, token, settle):
    """Make the token stale in one of the ways there are."""
    if how == "reclaimed":
        [holder] = ledger.holders("", NOW + LEASE + 1)
        assert ledger.reclaim(holder, "gone", NOW + LEASE + 1)
    elif how == "taken back":
        ledger.take_back(token.task, "mine now", "me", NOW)
    elif how == "cancelled":
        ledger.cancel(token.task, "no need", "me", NOW)
    elif how == "blocked":
        settle(token, "block", reason="stuck", unblock="a key")
    elif how == "foreign nonce":
        return token._replace(nonce="0000" if token.nonce != "0000" else "1111")
    elif how == "later attempt":
        return token._replace(attempt=2)
    return token


@pytest.mark.parametrize(
    "how",
    ["reclaimed", "taken back", "cancelled", "blocked", "foreign nonce", "later attempt"],
)
def test_a_stale_token_changes_no_row(store, ledger, add, claim, settle, how):
    add("a", "b")
    token = stale(how, ledger, claim(), settle)
    if how in ("reclaimed", "taken back"):
        assert claim(BOB).task == token.task, "somebody else holds it now"
    before = dump(store)
    for event in ("complete", "fail", "back_off"):
        answer = settle(token, event, NOW + 5, reason="r", retry_at=NOW + 9, result={"a": 1})
        assert answer.lost, event
    if how not in ("taken back", "blocked"):
        assert settle(token, "release", NOW + 5).lost
    if how != "blocked":
        assert settle(token, "block", NOW + 5, reason="r").lost
    assert ledger.heartbeat([token], LEASE, NOW + 5) == set()
    with pytest.raises(LeaseLost):
        ledger.append_under_claim(token, ["evidence"], NOW + 5)
    assert dump(store) == before


def test_an_unknown_token_is_lost_not_an_error(store, ledger, add, settle):
    add("a")
    before = dump(store)
    assert settle(Token("0" * 12, 1, "0000"), "complete").lost
    assert dump(store) == before


def test_one_stale_token_does_not_spoil_the_others(ledger, add):
    add("a", "b")
    good, bad = (
        parse_token(lease.token) for lease in ledger.claim(ClaimRequest(ANN, 2, LEASE), NOW)
    )
    bad = bad._replace(attempt=7)
    answers = ledger.settle([AttemptResult(bad, "complete"), AttemptResult(good, "complete")], NOW)
    assert [bool(answer.lost) for answer in answers] == [True, False]
    assert ledger.task(good.task).state == "done"
    assert ledger.task(bad.task).state == "in_progress"


def test_completing_twice_gives_the_first_answer(store, ledger, add, claim, settle):
    add("a")
    token = claim()
    first = settle(token, "complete", result={"n": 1})
    assert (first.state, first.outcome, first.repeated) == ("done", "done", False)
    before = dump(store)
    assert settle(token, "complete", result={"n": 2}) == first._replace(repeated=True)
    assert dump(store) == before
    ledger.reopen(token.task, "again", "me", NOW)
    again = claim(BOB)
    before = dump(store)
    assert settle(token, "complete", result={"n": 3}) == first._replace(repeated=True)
    assert dump(store) == before and again.attempt == 2


def test_two_verdicts_on_one_token_in_one_call(ledger, add, claim):
    add("a")
    token = claim()
    verdicts = [
        AttemptResult(token, "complete"),
        AttemptResult(token, "complete"),
        AttemptResult(token, "fail"),
    ]
    first, same, other = ledger.settle(verdicts, NOW)
    assert not first.repeated and same.repeated and other.lost
    assert [event.kind for event in ledger.events(0, 99)] == ["add", "claim", "complete"]


# Leases


def test_a_heartbeat_extends_the_lease(ledger, add, claim):
    add("a")
    token = claim()
    [holder] = ledger.holders("", NOW + LEASE + 1)
    assert ledger.heartbeat([token], LEASE, NOW + LEASE) == {token}
    assert ledger.holders("", NOW + LEASE + 1) == []
    assert not ledger.reclaim(holder, "gone", NOW + LEASE + 1), "renewed since it was looked at"
    assert ledger.task(token.task).lease_until == NOW + 2 * LEASE


def test_holders_are_the_lapsed_ones_and_those_of_this_boot(ledger, add, claim):
    add("a", "b")
    ann, bob = claim(ANN), claim(BOB)
    assert [holder.task for holder in ledger.holders("boot1", NOW)] == [ann.task]
    assert [holder.worker for holder in ledger.holders("boot2", NOW)] == [BOB]
    assert {holder.task for holder in ledger.holders("", NOW + LEASE + 1)} == {ann.task, bob.task}


def test_three_crashes_poison_a_task(ledger, add, claim):
    task = add("a")
    for crash in (1, 2, 3):
        claim()
        [holder] = ledger.holders("boot1", NOW)
        assert ledger.reclaim(holder, "killed", NOW)
        seen = ledger.task(task)
        assert (seen.state, seen.crashes) == ("failed" if crash == 3 else "active", crash)
    assert "poisoned" in seen.reason and "killed" in seen.reason
    assert [a.outcome for a in ledger.detail(task).attempts] == ["crashed"] * 3
    assert ledger.reopen(task, "fixed", "me", NOW) == "active"
    assert ledger.task(task).crashes == 0


def test_a_release_costs_the_task_nothing(ledger, add, claim, settle):
    task = add("a")
    for _ in range(5):
        assert settle(claim(), "release").state == "active"
    assert (ledger.task(task).crashes, ledger.task(task).failures) == (0, 0)


# Taking over


def take_over(ledger, task):
    request = ClaimRequest(BOB, 1, LEASE)
    return ledger.write(sql.take_over, task, request, "n" * 26, "bob attached to it", NOW)


@pytest.mark.parametrize("state", ["in_progress", "blocked", "active"])
def test_a_person_takes_a_task_over(ledger, add, state):
    """At no cost to it; the token before is worth nothing."""
    task = add("a")
    if state != "active":
        [lease] = ledger.claim(ClaimRequest(ANN, 1, LEASE), NOW)
    if state == "blocked":
        ledger.settle([AttemptResult(parse_token(lease.token), "block", reason="why")], NOW)
    taken = take_over(ledger, task)
    assert ledger.write(claims.lock_claim, taken.token)[0] == BOB.id
    if state == "in_progress":
        with pytest.raises(LeaseLost):
            ledger.write(claims.lock_claim, parse_token(lease.token))
    now = ledger.task(task)
    assert (now.state, now.failures, now.crashes) == ("in_progress", 0, 0)
    assert claim_all(ledger) == []


def test_a_finished_task_is_not_taken_over(ledger, store, add):
    task = add("a")
    [lease] = ledger.claim(ClaimRequest(ANN, 1, LEASE), NOW)
    ledger.settle([AttemptResult(parse_token(lease.token), "complete")], NOW)
    before = dump(store)
    with pytest.raises(WrongState, match="is done and cannot be claimed now"):
        take_over(ledger, task)
    assert dump(store) == before
