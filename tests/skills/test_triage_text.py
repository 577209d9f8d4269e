"""What triage sees of a text: headings, checkboxes and words, and what it must not see."""

from __future__ import annotations

import time

import pytest

from hypervisor.skills.builtin.triage_text import NormalizedText, WordList, read


def found(rules, text):
    return WordList(rules).matches(NormalizedText(text))


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("review", "Please REVIEW this."),
        ("decid*", "It was decided."),
        ("decid*", "decid"),
        ("talk to", "Talk\n  to Ann"),
        ("follow-up", "the follow up"),
        ("follow up", "the follow-up"),
        ("straße", "STRASSE"),
        ("décid*", "De\u0301cider demain"),  # the accent as a character of its own
        ("ÜBERWEIS*", "überweisen"),
        ("backward* compatib*", "backwards compatible"),
        ("审查", "请 审查 吧"),
    ],
)
def test_word_is_found(rule, text):
    assert len(found([rule], text)) == 1


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("review", "a preview of reviewers"),
        ("talk to", "talk about tomatoes"),
        ("talk to", "we talk. Tomorrow"),
        ("decid*", "undecided"),
        ("pay", "payload, repay"),
        ("a.b", "axb"),
    ],
)
def test_word_is_not_found(rule, text):
    assert found([rule], text) == []


def test_a_rule_counts_once_however_often_it_fits():
    assert found(["ask", "pay"], "ask, ask, pay, ask") == ["ask", "pay"]


def test_code_comments_links_and_receipts_are_not_read():
    body = (
        "one\n```sh\ntwo\n## Close Reason\n- [ ] box\n```\nthree <!-- four\n- [x] --> five "
        "[[six]]\n~~~\nseven\n~~~\n## Receipts\n\n- eight\n- [ ] nine\n\n## After\nten\n"
    )
    text = read(body)
    assert NormalizedText(text.prose).words == {"one", "three", "five", "after", "ten"}
    assert text.headings == ("after",)
    assert (text.ticked, text.open) == (0, 0)


def test_a_fence_ends_only_with_its_own_kind():
    text = read("````\n```\n~~~\n## Inside\n````\n## Outside\n")
    assert text.headings == ("outside",)


def test_a_deeper_heading_stays_in_the_receipts():
    assert read("## Receipts\n### Old\n- x\n# Notes\n").headings == ("notes",)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_do_not_matter(end):
    body = end.join(["## Close Reason ##", "", "- [x] a", "* [X] b", "1. [ ] c", "- [y] d"])
    text = read(body)
    assert text.headings == ("close reason",)
    assert (text.ticked, text.open) == (2, 1)


@pytest.mark.parametrize(
    "piece",
    [
        "<!--",
        "[[",
        "- [",
        "```\n",
        "## Close Reason" + " " * 50,
        "#",
        "\t",
        "> ",
        "`",
        "~~~x\n",
        "[[a",
        "-->",
        "a*",
        "talk ",
        "\u0301",
        "## Receipts\n",
        "1. [ ",
        "\r",
        "- [x]\n",
        "😀",
    ],
)
def test_hostile_text_takes_time_in_proportion(piece):
    """The rules are fast for a megabyte of any text; a quadratic one would take minutes."""
    text = piece * (1_000_000 // len(piece.encode()))
    started = time.process_time()
    spoken = NormalizedText(read(text).prose)
    WordList(["talk to", "backward* compatib*", "a*", "ask"]).matches(spoken)
    assert time.process_time() - started < 5
