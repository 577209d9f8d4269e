"""Simple front matter is read and changed without YAML: to the same values, and to the same bytes
as the way by YAML's nodes."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hypervisor.domain import frontedit, plainfront
from hypervisor.domain.errors import InvalidInput
from hypervisor.domain.frontmatter import Front
from hypervisor.domain.plainfront import edited, plain_front

KEYS = ("id", "title", "status", "tags", "due-date", "yes", "null", "_x", "a b", "<<", "-", "é")
ODD = "aZé0_/(.,:#-+ \t'\"\\[]{}&*!|>%@`?~=<\x85\u2028\ufeff\xa0\n\r"
WORDS = (
    "todo", "yes", "No", "nUll", "~", "=", "12", "-3", "0", "007", "0x1f", "1_000", "12:30", "1.5",
    "1e3", ".5", "2026-01-05", "2026-13-45", "2026-01-05 10:00", "2026-01-05T10:00:00Z", "[a, b]",
    "[]", "[a,]", "['x', \"y\"]", "[1, 2026-01-05, no]", "[[a]]", "[a: b]", "[3-4, a - b]", "'it'",
    "'it''s'", '"a\\n"', '"x"', "'a' b", "a: b", "a:b", "http://x.y/z", "a #b", "a#b", "# x", "- a",
    "a - b", "|", "> x", "&a b", "*a", "!t x", "{a: b}", "@x", "`x", "%x", "? a", "a?", "3 days",
    "1:2:3", "(x)", "/a/b", "a\tb", "ünï", "", " ",
)  # fmt: skip
VALUES = st.sampled_from(WORDS) | st.text(ODD, max_size=12) | st.text(max_size=8)
OTHERS = ("", "# a comment", " # indented", "  more", "- item", "  - item", "...x")
LINES = st.sampled_from(OTHERS) | st.builds(
    "{}{}{}{}".format, st.sampled_from(KEYS), st.sampled_from((": ", ":", ":  ", " : ")), VALUES,
    st.sampled_from(("", " ", "  ", "\r")),
)  # fmt: skip
FRONTS = st.lists(LINES, max_size=6).map(lambda lines: "".join(f"{line}\n" for line in lines))
NEW = st.none() | st.booleans() | st.integers() | st.dates() | VALUES | st.lists(VALUES, max_size=3)
CHANGES = st.dictionaries(st.sampled_from(KEYS), NEW, max_size=3)


def by_yaml(inner):
    try:
        return Front(inner).fields()
    except InvalidInput as error:
        return error


def check_reading(inner):
    front = plain_front(inner)
    if front is not None:
        found = by_yaml(inner)
        assert front.values == found and list(front.values) == list(found)
        assert [type(v) for v in front.values.values()] == [type(v) for v in found.values()]


def check_changing(inner, changes, line_end="\n"):
    try:
        after = edited(inner, changes, line_end)
    except InvalidInput:
        with pytest.raises(InvalidInput):
            frontedit._by_nodes(inner, changes, line_end)
    else:
        assert after is None or after == frontedit._by_nodes(inner, changes, line_end)


@given(FRONTS)
@example("a: 1\nb:\n- x\n")
@example("a:\n  b\n")
@example("a: x\n b\n")
@example("a: 1\na: 2\n")
def test_what_it_reads_yaml_reads_too(inner):
    check_reading(inner)


@given(FRONTS, CHANGES, st.sampled_from(("\n", "\r\n")))
@example("a: x\nb: 'y'\n", {"a": None, "c": "yes", "b": "it's"}, "\n")
@example("status:\r\n", {"status": "done"}, "\r\n")
def test_what_it_changes_is_changed_alike_by_nodes(inner, changes, line_end):
    check_changing(inner, changes, line_end)


@pytest.mark.parametrize("word", WORDS)
def test_each_value_that_could_be_misread(word):
    for inner in (f"x: {word}\n", f"x:{word}\n", f"x: {word} \r\ny: 1\n", f"x: [{word}, a]\n"):
        check_reading(inner)
        check_changing(inner, {"y": 2, "x": "new"})
        check_changing(inner, {"x": None})
    check_changing("x: a\n", {"x": word, "y": [word]})
    check_changing("x: 'a'\ny:\n", {"x": word, "y": word})


SIMPLE = """id: t-1
# when we have time
title: Fix the pump (again), ask http://x.y/z
status: todo\r
tags: [a, b-c, 'd e', 3]
due: 2026-01-05
points: 8

quoted: "a: #b"
assignee:
"""


def test_what_people_write_is_simple():
    """Else nothing of the above would say anything."""
    front = plain_front(SIMPLE)
    assert front is not None
    assert front.values == {
        "id": "t-1", "title": "Fix the pump (again), ask http://x.y/z", "status": "todo",
        "tags": ["a", "b-c", "d e", 3], "due": "2026-01-05", "points": 8, "quoted": "a: #b",
        "assignee": None,
    }  # fmt: skip
    assert front.values == by_yaml(SIMPLE)


def test_only_the_changed_values_are_touched():
    assert edited(SIMPLE, {"on": date(2026, 1, 2)}, "\n") is None  # such a key takes quotes
    after = edited(SIMPLE, {"status": "done", "assignee": "ann", "points": None, "x": "yes"}, "\n")
    assert after == SIMPLE.replace("todo", "done").replace("points: 8\n", "").replace(
        "assignee:", "assignee: ann"
    ) + "x: 'yes'\n"  # fmt: skip


def test_a_list_that_a_caller_changes_is_read_anew_in_the_next_file():
    one, other = "tags: [a]\nid: 1\n", "tags: [a]\nid: 2\n"
    first = plain_front(one)
    assert first is not None
    first.values["tags"].append("theirs")
    second = plain_front(other)
    assert second is not None and second.values["tags"] == ["a"]


@pytest.mark.parametrize("long", ["x: " + "y" * 5_000, "k" * 5_000 + ": x"])
def test_long_lines_are_not_kept(long):
    before = plainfront._kept_line.cache_info()
    plain_front(long + "\n")
    assert plainfront._kept_line.cache_info() == before
