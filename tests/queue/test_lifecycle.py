"""The table of transitions: all of them, only reopening leaves a terminal state, the same states
everywhere."""

import re

import pytest

import hypervisor
from hypervisor.core.errors import WrongState
from hypervisor.queue import lifecycle
from hypervisor.queue.lifecycle import EVENTS, QUEUE, STATES, TERMINAL, TRANSITIONS, next_state
from hypervisor.queue.sql import insert, lanes, merging, settlement
from hypervisor.store import schema

QUEUED = ("active", "waiting")
NOW = 1_800_000_000_000
LEASE = 60_000
ARROWS = {
    "inbox": {"accept": QUEUE, "cancel": "cancelled"},
    "waiting": {"ready": "active", "cancel": "cancelled"},
    "active": {"hold": "waiting", "claim": "in_progress", "cancel": "cancelled"},
    "in_progress": {
        "complete": "done",
        "fail": "failed",
        "back_off": QUEUE,
        "block": "blocked",
        "release": QUEUE,
        "crash": QUEUE,
        "poison": "failed",
        "submit": "merging",
        "cancel": "cancelled",
    },
    "merging": {"merge": "done", "rework": QUEUE, "ask": "review", "cancel": "cancelled"},
    "review": {"approve": "merging", "reject": "failed", "reopen": QUEUE, "cancel": "cancelled"},
    "blocked": {"reopen": QUEUE, "cancel": "cancelled"},
    "done": {"reopen": QUEUE, "land": "merging"},
    "failed": {"reopen": QUEUE},
    "cancelled": {"reopen": QUEUE},
}


@pytest.mark.parametrize("state", STATES)
def test_every_arrow(state):
    for event in EVENTS:
        if event in ARROWS[state]:
            assert next_state(state, event) == ARROWS[state][event]
        else:
            with pytest.raises(
                WrongState, match=f"it is {lifecycle.state_name(state)}. Nothing was changed"
            ):
                next_state(state, event)


def test_the_end_is_left_only_by_a_person_who_reopens_or_lands():
    assert {event for state, event in TRANSITIONS if state in TERMINAL} == {"reopen", "land"}
    assert {state for state in STATES if set(ARROWS[state]) <= {"reopen", "land"}} == TERMINAL


def test_every_state_can_be_reached_and_left():
    reached, grown = {"inbox", *QUEUED}, True
    while grown:
        after = {t for (s, _), t in TRANSITIONS.items() if s in reached} - {QUEUE}
        grown = bool(after - reached)
        reached |= after
    assert reached == set(STATES)
    assert {state for state, _ in TRANSITIONS} == set(STATES)


def test_every_state_and_event_is_produced(tmp_path):
    """The table has no unused entries."""
    with hypervisor.open(tmp_path / "x.db", relaxed=True) as hv:
        _live_through_everything(hv)
        _merge_in_every_way(hv)
        events = hv.events(limit=10_000)
    assert {event.kind for event in events} >= set(EVENTS)
    assert {event.state for event in events} - {None} == set(STATES)


def _live_through_everything(hv):
    def task(title, **more):
        return hv.add([hypervisor.NewTask(title, type=title, **more)], now=NOW).ids[0]

    def claim(title, at=NOW):
        (lease,) = hv.claim("w", types=[title], pid=0, lease=LEASE, now=at)
        return lease.token

    def claimed(title, **more):
        task(title, **more)
        return claim(title)

    hv.accept(task("captured", inbox=True))
    first = task("first")
    task("second", after=(first,))
    hv.complete(claim("first"), now=NOW)
    hv.retry(first)  # and the second one waits again
    hv.cancel(first)
    hv.release(claimed("released"), now=NOW)
    hv.block(claimed("stuck"), "why", "what helps", now=NOW)
    hv.fail(claimed("failed"), "why", now=NOW)
    hv.fail(claimed("retried", retries=1), "why", now=NOW)
    task("deadly")
    for crash in range(3):
        claim("deadly", NOW + 2 * crash * LEASE)
        hv.sweep(NOW + (2 * crash + 1) * LEASE + 1)


def _merge_in_every_way(hv):
    store = hv.store
    batch = store.write(insert.get_or_create_batch, "merged", NOW).id
    assert store.write(lanes.set_merges, batch, True)
    (task,) = hv.add("work", batch="merged").ids

    def submit():
        (lease,) = hv.claim("w", batch="merged", pid=0)
        assert hv.complete(lease.token).state == "merging"
        return lease.task.attempts

    first = submit()
    assert store.write(merging.rework, task, first, "conflict", "me", now=NOW) == "active"
    second = submit()
    assert store.write(merging.to_review, task, second, "conflict", "me", now=NOW) == "review"
    assert store.write(merging.approve, task, "", "me", now=NOW) == "merging"
    assert store.write(merging.to_review, task, second, "conflict", "me", now=NOW) == "review"
    assert store.write(merging.reject, task, "no", "me", now=NOW) == "failed"
    hv.retry(task)
    assert store.write(merging.merged, task, submit(), {}, "me", now=NOW) == "done"
    assert store.write(merging.land, task, "me", now=NOW) == "merging"


def test_only_what_is_active_can_be_claimed():
    assert [state for state, event in TRANSITIONS if event == "claim"] == ["active"]


def test_the_table_uses_known_words_only():
    assert {event for _, event in TRANSITIONS} <= set(EVENTS)
    assert set(TRANSITIONS.values()) <= {*STATES, QUEUE}
    assert {*EVENTS} - {event for _, event in TRANSITIONS} == {"add"}


def test_the_database_names_the_same_states():
    (tasks,) = re.findall(r"CREATE TABLE tasks .*?;", "".join(schema.texts()), re.DOTALL)
    (listed,) = re.findall(r"CHECK \(state IN \(([^)]*)\)\)", tasks)
    assert re.findall(r"'(\w+)'", listed) == list(STATES)


def test_every_verdict_on_an_attempt_is_an_event_with_an_outcome():
    assert set(settlement.OUTCOMES) <= set(ARROWS["in_progress"])


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("keys", [True, False])
@pytest.mark.parametrize("start", [None, 5])
@pytest.mark.parametrize("open_dependencies", [0, 1])
def test_active_at_once_is_what_nothing_is_in_the_way_of(open_dependencies, start, keys, held):
    state = lifecycle.queue_state(open_dependencies, start, keys, held)
    free = (open_dependencies, start, keys, held) == (0, None, False, False)
    assert state == ("active" if free else "waiting")


def test_an_error_lists_the_commands_that_work():
    with pytest.raises(WrongState) as refused:
        next_state("review", "claim", "1q12deyb")
    assert str(refused.value) == (
        "cannot claim 1q12deyb: it is in review. Nothing was changed; try `hv approve 1q12deyb`, "
        "`hv reject 1q12deyb`, `hv retry 1q12deyb` or `hv cancel 1q12deyb`."
    )
