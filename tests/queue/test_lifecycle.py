"""The one table: every arrow, no way out of the end but reopening, the same states everywhere."""

import re

import pytest

from hypervisor.core.errors import WrongState
from hypervisor.queue import lifecycle
from hypervisor.queue.lifecycle import EVENTS, QUEUE, STATES, TERMINAL, TRANSITIONS, next_state
from hypervisor.queue.sql import settlement
from hypervisor.store import schema

QUEUED = ("active", "waiting")
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
