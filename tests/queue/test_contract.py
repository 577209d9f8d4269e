"""What the ledger promises, one example each, the same on both databases."""

from __future__ import annotations

import pytest

from hypervisor.core.errors import DependencyCycle, LeaseLost, NotFound, WrongState
from hypervisor.queue.lane import ClaimFilter
from hypervisor.queue.lease import AttemptResult, ClaimRequest, Token, parse_token
from hypervisor.queue.task import Changes, NewTask
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


def test_low_is_not_starved_for_ever(ledger, add):
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


# Failing and waiting


def test_a_retry_waits_for_its_time(ledger, add, claim, settle):
    task = add("a")
    answer = settle(claim(), "back_off", reason="flaky", retry_at=NOW + 10)
    assert (answer.state, answer.outcome) == ("waiting", "failed")
    assert claim(at=NOW + 9) is None and not ledger.due(NOW + 9)
    assert ledger.promote_due(NOW + 9) == 0
    assert ledger.due(NOW + 10) and ledger.promote_due(NOW + 10) == 1
    assert claim(at=NOW + 10)[:2] == (task, 2)
    assert ledger.task(task).failures == 1


def test_a_final_failure_stays(ledger, add, claim, settle):
    task = add("a")
    assert settle(claim(), "fail", reason="broken").state == "failed"
    assert claim() is None
    assert ledger.task(task).reason == "broken"


def test_blocked_says_why_and_waits_for_a_person(ledger, add, claim, settle):
    task = add("a")
    settle(claim(), "block", reason="no password", unblock="ask ann")
    seen = ledger.task(task)
    assert (seen.state, seen.reason, seen.unblock) == ("blocked", "no password", "ask ann")
    assert claim() is None
    assert ledger.reopen(task, "got it", "me", NOW) == "active"


def test_a_start_time_keeps_a_task_back(ledger, add, claim):
    task = add(NewTask("later", start_at=NOW + 10))
    assert claim(at=NOW + 10) is None
    assert ledger.promote_due(NOW + 10) == 1
    assert claim(at=NOW + 10).task == task


def test_terminal_is_terminal(store, ledger, add, claim, settle):
    done, cancelled = add("a", "b")
    settle(claim(), "complete")
    ledger.cancel(cancelled, "no need", "me", NOW)
    before = dump(store)
    for task in (done, cancelled):
        with pytest.raises(WrongState):
            ledger.cancel(task, "", "me", NOW)
        with pytest.raises(WrongState):
            ledger.take_back(task, "", "me", NOW)
        with pytest.raises(WrongState):
            ledger.update(task, Changes(title="new", after=()), "me", NOW)
    assert claim() is None and dump(store) == before


def test_cancelling_a_claim_names_who_did_it_and_keeps_what_failed(ledger, add, claim, settle):
    task = add("a")
    settle(claim(), "back_off", reason="flaky", retry_at=NOW + 10)
    ledger.cancel(task, "enough", "ann", NOW)
    assert (ledger.task(task).failures, ledger.task(task).reason) == (1, "enough")
    ledger.reopen(task, "", "me", NOW)
    claim(BOB)
    ledger.cancel(task, "enough", "ann", NOW)
    last = ledger.events(0, 99)[-1]
    assert (last.kind, last.actor, last.data) == ("cancel", "ann", {"reason": "enough"})


# Dependencies


def test_the_last_dependency_promotes_in_the_same_transaction(ledger, add, claim):
    a, b = add("a", "b")
    task = add(NewTask("c", after=(a, b)))
    assert ledger.detail(task).waits_for == tuple(sorted((a, b)))
    one, other = claim(), claim()
    request = ClaimRequest(ANN, 1, LEASE)
    assert ledger.settle_and_claim([AttemptResult(one, "complete")], request, NOW)[1] == []
    [lease] = ledger.settle_and_claim([AttemptResult(other, "complete")], request, NOW)[1]
    assert lease.task.id == task
    assert [e.kind for e in ledger.events(0, 99)][-3:] == ["complete", "ready", "claim"]


def test_only_done_frees_a_dependent(ledger, add, claim, settle):
    need = add("need")
    task = add(NewTask("task", after=(need,)))
    settle(claim(), "fail", reason="no")
    assert ledger.task(task).state == "waiting"
    ledger.reopen(need, "", "me", NOW)
    settle(claim(), "complete")
    assert ledger.task(task).state == "active"


def test_a_task_is_reopened_only_as_it_was_seen(ledger, add, claim, settle):
    task = add("a")
    settle(claim(), "complete")
    with pytest.raises(WrongState, match="has had 1 attempts by now, not 0"):
        ledger.reopen(task, "new", "ann", NOW, attempts=0)
    assert ledger.task(task).state == "done"
    assert ledger.reopen(task, "new", "ann", NOW, attempts=1) == "active"
    with pytest.raises(WrongState):
        ledger.reopen(task, "new", "bob", NOW, attempts=1)
    assert [e.kind for e in ledger.events(0, 100)].count("reopen") == 1


def test_a_reopened_dependency_holds_its_dependents(ledger, add, claim, settle):
    need = add("need")
    plain, k, k2 = add(
        NewTask("plain", after=(need,)),
        NewTask("keyed", after=(need,), exclusive=("k",)),
        NewTask("its rival", after=(need,), exclusive=("k",)),
    )
    settle(claim(), "complete")
    assert [ledger.task(t).state for t in (plain, k, k2)] == ["active", "active", "waiting"]
    ledger.reopen(need, "", "me", NOW)
    assert [ledger.task(t).state for t in (plain, k, k2)] == ["waiting"] * 3
    assert claim_all(ledger) == ["need"]


def test_dependencies_by_key_within_a_call_and_a_batch(ledger, add):
    a, b = add(NewTask("b", key="kb", after=("ka",)), NewTask("a", key="ka"), batch="b")
    later = add(NewTask("c", after=("kb",)), batch="b")
    assert ledger.detail(a).after == (b,) and ledger.detail(later).after == (a,)
    with pytest.raises(NotFound):
        add(NewTask("d", after=("kb!",)))


def test_links_can_be_checked_before_anything_is_made(store, ledger, add):
    circle = [NewTask("x", key="x!", after=("y!",)), NewTask("y", key="y!", after=("x!",))]
    before = dump(store)
    with pytest.raises(DependencyCycle, match="x!"):
        ledger.check_links(circle, "new")
    with pytest.raises(NotFound, match="x!"):
        ledger.check_links(circle[1:], "new")
    ledger.check_links([circle[0]._replace(after=()), circle[1]], "new")
    assert dump(store) == before
    add(circle[0]._replace(after=()), batch="old")
    ledger.check_links(circle[1:], "old")
    with pytest.raises(NotFound, match="x!"):
        ledger.check_links(circle[1:], "new")


def test_a_cycle_is_named_and_nothing_changes(store, ledger, add):
    a = add("a")
    b = add(NewTask("b", after=(a,)))
    c = add(NewTask("c", after=(b,)))
    before = dump(store)
    with pytest.raises(DependencyCycle) as caught:
        ledger.update(a, Changes(after=(c,)), "me", NOW)
    assert caught.value.cycle == [a, c, b, a]
    with pytest.raises(DependencyCycle):
        add(NewTask("x", key="x!", after=("y!",)), NewTask("y", key="y!", after=("x!",)))
    with pytest.raises(DependencyCycle):
        ledger.update(a, Changes(after=(a,)), "me", NOW)
    assert dump(store) == before


# Exclusive keys


def test_tasks_that_share_a_key_never_run_together(ledger, add, claim, settle):
    add(NewTask("a", exclusive=("k",)), NewTask("b", exclusive=("k", "l")), "free")
    add(NewTask("other lane", exclusive=("l",), type="test"), at=NOW + 1)
    token = claim()
    assert claim_all(ledger) == ["free", "other lane"]
    settle(token, "complete")
    assert claim_all(ledger) == [], "b waits for l"


def test_a_freed_key_goes_to_the_next_in_line(ledger, add, claim, settle):
    tasks = add(*[NewTask(name, exclusive=("k",)) for name in "abc"])
    for task in tasks:
        token = claim()
        assert token.task == task and claim() is None
        settle(token, "complete")


def test_one_claim_does_not_take_two_rivals_of_different_lanes(ledger, add):
    add(NewTask("a", exclusive=("k",)), NewTask("b", exclusive=("k",), type="test"))
    assert claim_all(ledger) == ["a"]


@pytest.mark.parametrize("state", ["in_progress", "blocked"])
def test_a_start_time_that_would_be_forgotten_is_refused(ledger, add, claim, settle, state):
    task = add(NewTask("a"))
    token = claim()
    if state == "blocked":
        settle(token, "block", reason="no")
    with pytest.raises(WrongState, match=f"is {state}: what it waits for can no longer change"):
        ledger.update(task, Changes(start_at=NOW + 10, title="b"), "me", NOW)
    assert (ledger.task(task).start_at, ledger.task(task).title) == (None, "a")
    ledger.update(task, Changes(start_at=NOW, title="b"), "me", NOW)
    assert ledger.task(task).title == "b"


def test_a_better_rival_displaces_an_active_one(ledger, add):
    low, high = add(NewTask("a", exclusive=("k",)), NewTask("b", exclusive=("k",)))
    ledger.update(low, Changes(start_at=NOW + 10), "me", NOW)
    assert ledger.task(high).state == "active"
    ledger.promote_due(NOW + 10)
    assert (ledger.task(low).state, ledger.task(high).state) == ("active", "waiting")


def test_a_released_task_yields_its_key_to_a_better_one(ledger, add, claim, settle):
    older = add(NewTask("older", exclusive=("k",), start_at=NOW + 10))
    younger = add(NewTask("younger", exclusive=("k",)), at=NOW + 1)
    token = claim(at=NOW + 2)
    assert token.task == younger
    ledger.promote_due(NOW + 20)
    assert ledger.task(older).state == "waiting"
    assert settle(token, "release", NOW + 21).state == "waiting"
    assert (ledger.task(older).state, ledger.task(younger).state) == ("active", "waiting")


def test_a_new_title_leaves_the_queue_alone(ledger, add):
    task = add("old title")
    ledger.update(task, Changes(title="new title"), "me", NOW)
    assert [event.kind for event in ledger.events(0, 100)] == ["add", "update"]


def test_a_displaced_task_frees_its_other_keys(ledger, add, claim):
    first = add(NewTask("first", exclusive=("k",), start_at=NOW + 10))
    both = add(NewTask("both", exclusive=("k", "l")), at=NOW + 1)
    last = add(NewTask("last", exclusive=("l",)), at=NOW + 2)
    assert [ledger.task(t).state for t in (both, last)] == ["active", "waiting"]
    ledger.promote_due(NOW + 10)
    assert [ledger.task(t).state for t in (first, both, last)] == ["active", "waiting", "active"]


def test_a_claim_in_another_lane_frees_the_other_keys_of_its_rivals(ledger, add, claim):
    both = add(NewTask("both", exclusive=("k", "l")))
    last = add(NewTask("last", exclusive=("l",)), at=NOW + 1)
    other = add(NewTask("other lane", exclusive=("k",), type="test"), at=NOW + 2)
    assert [ledger.task(t).state for t in (both, last, other)] == ["active", "waiting", "active"]
    assert claim(types=("test",)).task == other
    assert [ledger.task(t).state for t in (both, last)] == ["waiting", "active"]


# Duplicates


def test_duplicates_by_key_are_reported_not_doubled(ledger):
    batch = "b"
    new = [NewTask("a", key="x"), NewTask("b", key="x"), NewTask("c")]
    added = ledger.add(new, batch, "me", NOW)
    assert len(added.ids) == 2
    assert [(d.key, d.task) for d in added.duplicates] == [("x", added.ids[0])]
    again = ledger.add(new, batch, "me", NOW + 1)
    assert len(again.ids) == 1
    assert [(d.task, d.state) for d in again.duplicates] == [(added.ids[0], "active")] * 2
    assert len(ledger.add(new[:1], None, "me", NOW).ids) == 1, "another batch has keys of its own"


def test_a_refused_call_adds_nothing(store, ledger, add):
    add("a")
    before = dump(store)
    with pytest.raises(NotFound):
        add("fine", NewTask("not", after=("no such key!",)))
    assert dump(store) == before


# Updating


def test_an_update_moves_a_task_to_where_it_belongs(ledger, add):
    one, two = add("one", "two")
    ledger.update(two, Changes(priority="high", title="new"), "me", NOW)
    ledger.update(one, Changes(assignee="bob", requires=("gpu",)), "me", NOW)
    assert claim_all(ledger) == ["new"]
    assert claim_all(ledger, BOB, capabilities=("gpu",)) == ["one"]


# Events


def test_events_are_numbered_without_gaps_and_read_on_from_anywhere(ledger, add, claim, settle):
    task = add("a")
    settle(claim(), "complete")
    with pytest.raises(WrongState):
        ledger.cancel(task, "", "me", NOW)
    add("b")
    events = ledger.events(0, 99)
    assert [event.seq for event in events] == [1, 2, 3, 4]
    assert [event.kind for event in events] == ["add", "claim", "complete", "add"]
    assert [event.state for event in events] == ["active", "in_progress", "done", "active"]
    assert [event.actor for event in events] == ["me", "w-ann", "w-ann", "me"]
    assert ledger.events(2, 1) == events[2:3] and ledger.events(4, 99) == []


# Receipts


@pytest.fixture
def chain(ledger, add):
    """A chain of five receipts in a batch."""
    task = add("a", batch="b")
    batch = ledger.batch("b").id
    ledger.append(task, "me", [f"line {n}" for n in range(1, 6)], NOW)
    return batch


def test_receipts_form_one_chain_per_batch(ledger, chain, add, claim):
    token = claim()
    ledger.append_under_claim(token, ["under the claim"], NOW)
    alone = add("alone")
    ledger.append(alone, "me", ["mine"], NOW)
    assert [r.number for r in ledger.receipts_of_chain(chain)] == [1, 2, 3, 4, 5, 6]
    assert ledger.receipts_of_chain(chain)[-1][3:6] == (1, NOW, "w-ann")
    reports = {r.chain: (r.receipts, r.problem) for r in ledger.check_receipts(None)}
    assert reports == {chain: (6, None), alone: (1, None)}


TAMPERING = {
    "changed": "UPDATE receipts SET text = 'other' WHERE number = 3",
    "changed actor": "UPDATE receipts SET actor = 'other' WHERE number = 5",
    "removed": "DELETE FROM receipts WHERE number = 3",
    "removed first": "DELETE FROM receipts WHERE number = 1",
    "truncated": "DELETE FROM receipts WHERE number > 3",
    "all removed": "DELETE FROM receipts",
    "inserted": "INSERT INTO receipts SELECT chain, 6, task, attempt, at, actor, text, hash"
    " FROM receipts WHERE number = 5",
    "smuggled in front": "INSERT INTO receipts SELECT chain, -1, task, attempt, at, actor, text,"
    " hash FROM receipts WHERE number = 5",
    "head removed": "DELETE FROM receipt_chains",
    "head set back": "UPDATE receipt_chains SET number = 4,"
    " hash = (SELECT hash FROM receipts WHERE number = 4)",
    "reordered": "UPDATE receipts SET number = -number WHERE number IN (2, 3);"
    "UPDATE receipts SET number = 5 + number WHERE number < 0",
}


@pytest.mark.parametrize("how", TAMPERING)
def test_verify_finds_what_was_done_to_receipts(store, ledger, chain, how):
    assert [report.problem for report in ledger.check_receipts(chain)] == [None]
    for statement in TAMPERING[how].split(";"):
        store.run(statement)
    assert [report.problem is None for report in ledger.check_receipts(chain)] == [False]
    assert [report.problem is None for report in ledger.check_receipts(None)] == [False]


# Several processes


def test_two_ledgers_on_one_store_see_the_same(store, open_ledger):
    one, other = open_ledger(), open_ledger()
    need = one.add([NewTask("a", type="new lane")], None, "me", NOW).ids[0]
    [lease] = other.claim(ClaimRequest(BOB, 5, LEASE), NOW)
    assert lease.task.type == "new lane"
    task = other.add([NewTask("b", after=(need,), type="later lane")], None, "me", NOW).ids[0]
    assert one.settle([AttemptResult(parse_token(lease.token), "complete")], NOW)[0].state == "done"
    assert other.task(task).state == "active"
    assert titles(one.claim(ClaimRequest(ANN, 5, LEASE), NOW)) == ["b"]
    assert other.claim(ClaimRequest(BOB, 5, LEASE), NOW) == []
    assert one.events(0, 99) == other.events(0, 99)
