"""When a task may run, on both databases: retries, dependencies, exclusive keys."""

from __future__ import annotations

import pytest

from hypervisor.core.errors import DependencyCycle, NotFound, WrongState
from hypervisor.queue.lease import AttemptResult, ClaimRequest
from hypervisor.queue.lifecycle import state_name
from hypervisor.queue.task import Changes, NewTask
from tests.support.databases import dump
from tests.support.given import ANN, BOB, LEASE, NOW, claim_all

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
    with pytest.raises(WrongState, match="has had 1 attempts, not 0"):
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
    message = f"is {state_name(state)}, so its dependencies cannot change"
    with pytest.raises(WrongState, match=message):
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
