"""The one table: every arrow, no way out of the end but reopening, the same states everywhere."""

import re

import pytest

import hypervisor
from hypervisor.core.errors import WrongState
from hypervisor.queue import lifecycle
from hypervisor.queue.lifecycle import EVENTS, QUEUE, STATES, TERMINAL, TRANSITIONS, next_state
from hypervisor.queue.sql import settlement
from hypervisor.store import schema

QUEUED = ("active", "waiting")
BROUGHT_BY_GIT = {"merging", "review"}  # nothing produces these states yet
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
        "ask": "review",
        "cancel": "cancelled",
    },
    "merging": {"merge": "done", "conflict": "review", "cancel": "cancelled"},
    "review": {"approve": "done", "reject": "failed", "reopen": QUEUE, "cancel": "cancelled"},
    "blocked": {"reopen": QUEUE, "cancel": "cancelled"},
    "done": {"reopen": QUEUE},
    "failed": {"reopen": QUEUE},
    "cancelled": {"reopen": QUEUE},
}


@pytest.mark.parametrize("state", STATES)
def test_every_arrow(state):
    for event in EVENTS:
        if event in ARROWS[state]:
            assert next_state(state, event) == ARROWS[state][event]
        else:
            with pytest.raises(WrongState, match=f"it is {state}. Nothing was changed"):
                next_state(state, event)


def test_the_end_is_left_only_by_reopening():
    assert {event for state, event in TRANSITIONS if state in TERMINAL} == {"reopen"}
    assert {state for state in STATES if set(ARROWS[state]) == {"reopen"}} == TERMINAL


def test_every_state_can_be_reached_and_left():
    reached, grown = {"inbox", *QUEUED}, True
    while grown:
        after = {t for (s, _), t in TRANSITIONS.items() if s in reached} - {QUEUE}
        grown = bool(after - reached)
        reached |= after
    assert reached == set(STATES)
    assert {state for state, _ in TRANSITIONS} == set(STATES)


def test_every_state_and_event_is_produced(tmp_path):
    """All but what needs git: nothing in the table is there for nobody."""
    with hypervisor.open(tmp_path / "x.db", relaxed=True) as hv:
        _live_through_everything(hv)
        events = hv.events(limit=10_000)
    unproduced = {
        event
        for event in EVENTS
        if all(
            BROUGHT_BY_GIT & {before, after}
            for (before, each), after in TRANSITIONS.items()
            if each == event
        )
    } - {"add"}
    assert unproduced == {"submit", "merge", "conflict", "ask", "approve", "reject"}
    assert {event.kind for event in events} >= set(EVENTS) - unproduced
    assert {event.state for event in events} - {None} == set(STATES) - BROUGHT_BY_GIT


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
