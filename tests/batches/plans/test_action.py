"""Proposals are validated first; a step and its inverse cancel out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypervisor.batches.plans.action import (
    DONE,
    NEITHER,
    NOT_YET,
    PLACE,
    REMOVE,
    REPLACE,
    Step,
    StepKind,
    checked,
    evidence,
    fingerprint,
    inverse,
    proposals_of,
    status_of_step,
    step_data,
    step_from,
    visible,
    wording,
)
from hypervisor.core.errors import HypervisorError, InvalidInput

A, B = "a" * 64, "b" * 64
STEPS = {
    StepKind.MOVE: Step(StepKind.MOVE, "x", "y", A),
    REPLACE: Step(REPLACE, "x", "", A, B, 0o600, 0o600),
    PLACE: Step(PLACE, "x", "", "", B),
    REMOVE: Step(REMOVE, "x", "", A, "", None, 0o640),
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
WORDS = st.sampled_from(["do", "path", "to", "text", "set", "title", "body", "type", "key", "why"])
KINDS = st.sampled_from(["move", "edit", "write", "create", "delete", "task", "rm -rf", ""])


@pytest.mark.parametrize(
    "proposal",
    [
        {"do": "move", "path": "a", "to": "b"},
        {"do": "edit", "path": "a", "set": {"status": "done", "tags": ["x"], "old": None}},
        {"do": "write", "path": "a", "text": ""},
        {"do": "create", "path": "a", "text": "b", "why": "it is missing"},
        {"do": "delete", "path": "a"},
        {"do": "task", "title": "a", "body": "b", "type": "c", "key": "d"},
        {"do": "task", "title": "a"},
    ],
)
def test_what_is_understood_is_taken_as_it_is(proposal):
    assert checked({**proposal, "else": 1}) == proposal


@pytest.mark.parametrize(
    ("proposal", "complaint"),
    [
        ("delete everything", "must be an object"),
        (None, "must be an object"),
        ({}, "unknown action"),
        ({"do": "chmod", "path": "a"}, "unknown action 'chmod'"),
        ({"do": ["move"]}, "unknown action"),
        ({"do": "move", "path": "a"}, "'to' is missing"),
        ({"do": "move", "to": "a"}, "'path' is missing"),
        ({"do": "move", "path": "a\0b", "to": "c"}, "NUL"),
        ({"do": "move", "path": "", "to": "c"}, "is empty"),
        ({"do": "move", "path": 7, "to": "c"}, "must be text"),
        ({"do": "move", "path": "a" * 5000, "to": "c"}, "too long"),
        ({"do": "delete", "path": "\ud800"}, "not valid Unicode"),
        ({"do": "edit", "path": "a"}, "'set' must be"),
        ({"do": "edit", "path": "a", "set": {}}, "'set' must be"),
        ({"do": "edit", "path": "a", "set": ["b"]}, "'set' must be"),
        ({"do": "edit", "path": "a", "set": {"b\n": 1}}, "control characters"),
        ({"do": "edit", "path": "a", "set": {str(n): n for n in range(200)}}, "maximum"),
        ({"do": "write", "path": "a", "text": None}, "must be text"),
        ({"do": "create", "path": "a"}, "'text' is missing"),
        ({"do": "task", "title": " "}, "is empty"),
        ({"do": "task", "title": "a", "type": "b c"}, "must not contain spaces"),
        ({"do": "delete", "path": "a", "why": 5}, "must be text"),
    ],
)
def test_what_is_not_understood_is_refused(proposal, complaint):
    with pytest.raises(InvalidInput, match=complaint):
        checked(proposal)


@given(st.dictionaries(WORDS, JSON, max_size=6), KINDS)
def test_nothing_a_worker_says_gets_past_or_breaks_the_check(proposal, kind):
    try:
        found = checked({**proposal, "do": kind})
    except HypervisorError as error:
        assert str(error).isprintable()
    else:
        assert checked(found) == found
        assert wording(found["do"], {"proposal": found}).isprintable()


def test_items_of_a_chunk_propose_each_for_itself():
    result = {
        "category": "all",
        "actions": [1],
        "items": [{"category": "spam", "actions": [2, 3]}, {"actions": 4}, "no"],
    }
    assert proposals_of(result) == [("all", 1), ("spam", 2), ("spam", 3), ("(none)", 4)]
    assert proposals_of(["actions"]) == proposals_of({"actions": None}) == []


def test_a_fingerprint_tells_proposals_apart_but_not_the_order_of_their_words():
    one = fingerprint("t", 0, {"do": "move", "path": "a"})
    assert one == fingerprint("t", 0, {"path": "a", "do": "move"})
    others = {
        fingerprint("u", 0, {"do": "move", "path": "a"}),
        fingerprint("t", 1, {"do": "move", "path": "a"}),
        fingerprint("t", 0, {"do": "move", "path": "b"}),
    }
    assert len({one, *others}) == 4


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
class TestStep:
    def test_is_not_made_while_everything_is_as_before(self, step):
        assert status_of_step(step, step.before).how == NOT_YET

    def test_is_made_once_everything_is_as_after(self, step):
        after = ("", step.before) if step.kind == StepKind.MOVE else (step.after, "")
        assert status_of_step(step, *after).how == DONE

    @pytest.mark.parametrize("found", ["c" * 64, None])
    def test_is_neither_when_someone_else_was_there(self, step, found):
        seen = status_of_step(step, found)
        assert seen.how == NEITHER
        assert "x" in seen.problem

    def test_is_not_made_once_its_inverse_is(self, step):
        back = inverse(step)
        assert inverse(back) == step
        undone = ("", back.before) if step.kind == StepKind.MOVE else (back.after, "")
        assert status_of_step(back, *undone).how == DONE
        assert status_of_step(step, step.before).how == NOT_YET

    def test_survives_being_kept(self, step):
        assert step_from({"step": step_data(step)}) == step


def test_a_move_does_not_count_as_made_while_both_files_are_there():
    found = status_of_step(STEPS[StepKind.MOVE], A, A)
    assert found.how == NEITHER
    assert found.problem == "y already exists"


def test_evidence_tells_the_contents():
    assert evidence(STEPS[StepKind.MOVE]) == "sha256 " + "a" * 16
    assert evidence(STEPS[PLACE]) == "sha256 none → " + "b" * 16


def test_hostile_names_are_made_visible():
    assert visible("a\n\x1b[2J\u202eb") == "a\\n\\x1b[2J\\u202eb"
