"""Which events a rule matches, the text of its notices, and when they are retried."""

from __future__ import annotations

import pytest

from hypervisor.notifications.notice import (
    MAX_DATA,
    MAX_SUMMARY_LENGTH,
    MAX_WAIT,
    Rule,
    asks_for,
    is_due,
    of_event,
    wait_after,
    word_of,
)
from hypervisor.queue.event import Event

RULE = Rule("r", ("failed",), seen=5)


def event(seq=6, kind="fail", task="t", batch="b", state: str | None = "failed", data=None):
    return Event(seq, 0, kind, task, batch, 1, state, "me", data)


def test_what_an_event_is_called():
    assert word_of(event()) == "failed"
    assert word_of(event(task="")) is None, "a batch does not fail"
    assert word_of(event(state="active")) is None
    assert word_of(event(kind="ask", state="review")) == "review"
    assert word_of(event(kind="budget", task="", state=None)) == "budget"
    assert word_of(event(kind="claim", state=None)) is None


@pytest.mark.parametrize(
    "rule, number, wanted",
    [
        (RULE, 6, True),
        (RULE, 5, False),  # it is as old as the rule, or was looked at
        (RULE, 4, False),
        (RULE._replace(on=("done",)), 6, False),
        (RULE._replace(batch="b", type="task"), 6, True),
        (RULE._replace(batch="c"), 6, False),
        (RULE._replace(type="mail"), 6, False),
    ],
)
def test_which_events_a_rule_asks_for(rule, number, wanted):
    assert asks_for(rule, "failed", event(number), "task") == wanted


def test_what_a_notice_says():
    assert of_event(RULE, "budget", event(task=""), None, "b").data["message"] == "budget"
    told = of_event(RULE, "failed", event(data={"reason": "no disk"}), None, "b")
    assert told.data["message"] == "no disk" and told.data["data"] == {"reason": "no disk"}
    long = of_event(RULE, "failed", event(data={"message": "x" * 2 * MAX_DATA}), None, "b")
    assert long.data["data"] is None and len(long.data["message"]) == MAX_SUMMARY_LENGTH


def test_waits_grow_to_an_end():
    waits = [wait_after(failures) for failures in range(1, 60)]
    assert waits == sorted(waits) and waits[1] == 2 * waits[0] and waits[-1] == MAX_WAIT


@pytest.mark.parametrize(
    "due, is_it",
    [(0, True), (100, True), (101, False), (100 + MAX_WAIT, False), (101 + MAX_WAIT, True)],
)
def test_when_it_is_tried_again(due, is_it):
    """A time later than any possible wait was written before a clock was set back."""
    assert is_due(due, 100) == is_it


def test_a_question_comes_with_the_command_that_answers():
    data = {"reason": "no port", "unblock": "Which port?"}
    blocked = event(kind="block", state="blocked", data=data)
    asked = of_event(RULE, "blocked", blocked, None, "b").data["message"]
    assert asked == "needs input: t: Which port? (hv answer t 'TEXT')"
    data["unblock"] = "a login"
    assert of_event(RULE, "blocked", blocked, None, "b").data["message"] == "no port"
