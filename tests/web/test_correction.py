"""A result becomes a form and comes back as it was, but for what a person changed."""

from __future__ import annotations

import re
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypervisor.core.errors import InvalidInput
from hypervisor.web.dashboard.correction import MAX_SIZE, changes_in, fields_of

EDIT = {"do": "edit", "path": "a.md", "set": {"status": "done"}, "lines": ["- one", "- two"]}
WRITE = {"do": "write", "path": "b", "text": "\none\r\ntwo\r\n", "why": "x"}


def sent(result):
    """What a browser sends for the form of a result."""
    form = fields_of(result)
    fields = [*form.fields, *form.others]
    fields += [field for proposal in form.proposals for field in proposal.fields]
    values = {}
    for field in fields:
        text = unescape(str(field.value))
        if field.kind != "text":
            assert text.startswith("\n")
            text = re.sub("\r\n|\r|\n", "\r\n", text[1:])
        values[field.name] = text
    return values


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(values | st.dictionaries(st.sampled_from(["category", "lines", "text", "x"]), values))
def test_a_form_that_was_left_as_it_is_corrects_nothing(result):
    with pytest.raises(InvalidInput, match="nothing was corrected"):
        changes_in(result, sent(result))


@given(st.text(), st.text())
def test_a_proposal_that_was_left_as_it_is_stays(path, text):
    result = {"actions": [{**WRITE, "path": path, "text": text}, EDIT]}
    with pytest.raises(InvalidInput, match="nothing was corrected"):
        changes_in(result, sent(result))


def test_only_what_was_changed_is_corrected():
    result = {"category": "a", "rationale": "r", "n": 1, "actions": [EDIT, WRITE]}
    form = sent(result)
    assert changes_in(result, {**form, "member.category": "b"}) == {"category": "b"}
    assert changes_in(result, {**form, "member.rationale": ""}) == {"rationale": None}
    assert changes_in(result, {**form, "member.n": "[2]"}) == {"n": [2]}
    with pytest.raises(InvalidInput, match="n is not valid JSON"):
        changes_in(result, {**form, "member.n": "["})
    assert changes_in(None, {"member.category": "b", "member.rationale": ""}) == {"category": "b"}


def test_proposals_are_changed_and_left_out():
    result = {"actions": [EDIT, WRITE]}
    form = sent(result)
    changed = {**form, "action.0.set": '{"status": "open"}', "action.0.lines": "- one\r\n\r\n"}
    first = {**EDIT, "set": {"status": "open"}, "lines": ["- one"]}
    assert changes_in(result, changed) == {"actions": [first, WRITE]}
    assert changes_in(result, {**form, "drop.0": "1"}) == {"actions": [WRITE]}
    typed = {**form, "action.1.text": "new\r\nlines\r\n"}
    assert changes_in(result, typed)["actions"][1]["text"] == "new\r\nlines\r\n", "as it had them"
    with pytest.raises(InvalidInput, match="nothing was corrected"):
        changes_in(result, {**form, "action.0.do": "delete", "action.7.path": "x", "drop.7": "1"})


def test_what_is_too_large_or_odd_for_a_form():
    assert "too large" in fields_of({"x": "y" * MAX_SIZE}).problem
    odd = fields_of({"actions": [{"do": "fly"}]})
    assert odd.proposals == () and [field.label for field in odd.others] == ["actions"]
    hidden = fields_of({"category": "a\u202eb"})
    assert hidden.others[0].value == '\n"a\\u202eb"'.replace('"', "&#34;")
