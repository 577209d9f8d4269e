"""Transcripts told for people: the recorded ones of the real programs, and whatever else comes."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypervisor.domain.agents.telling import (
    AGENT,
    ANSWER,
    END,
    ERROR,
    NOTE,
    STREAMS,
    TOOL,
    Teller,
    doing,
)

RECORDED = Path(__file__).resolve().parents[2] / "fixtures" / "streams"
ALL = sorted(RECORDED.glob("*/*.jsonl"))


def lines(path):
    return [json.loads(line)["line"] for line in path.read_text().splitlines()[1:]]


def told(stream, given):
    teller = Teller(stream)
    return [*(said for line in given for said in teller.tell(line)), *teller.rest()]


@pytest.mark.parametrize("stream", STREAMS)
def test_a_run_that_went_well_is_told_in_order(stream):
    said = told(stream, lines(RECORDED / stream / "success.jsonl"))
    story = [each for each in said if each.who != NOTE]
    assert [each.who for each in story] == [TOOL, ANSWER, TOOL, ANSWER, AGENT, END]
    assert story[0].text == "echo hello from the agent"
    assert story[1].text.startswith("hello from the agent")
    assert (story[2].name, story[2].text) == ("hypervisor.complete_task", "looked at it")
    assert story[4].text == "All is well.\nCOMPLETED"


@pytest.mark.parametrize("path", ALL, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_no_event_is_shown_as_it_is_and_none_is_told_twice(path):
    said = told(path.parent.name, lines(path))
    assert bool(said) == bool(lines(path))  # opencode tries again without a word
    assert not [each for each in said if each.text.lstrip().startswith('{"type"')]
    plain = [each.text for each in said if each.who not in (TOOL, ANSWER)]
    assert not [text for text, after in pairwise(plain) if text == after]


@pytest.mark.parametrize("stream", ["claude", "codex", "gemini", "copilot"])
def test_a_limit_is_told_as_an_error(stream):
    said = told(stream, lines(RECORDED / stream / "http-429.jsonl"))
    assert any("429" in each.text or "ate limit" in each.text for each in said)
    assert ERROR in {each.who for each in said}


def test_what_an_agent_does_now_is_the_last_it_said_or_began():
    given = lines(RECORDED / "codex" / "success.jsonl")
    assert doing("codex", "\n".join(given[:4])) == "shell: echo hello from the agent"
    assert doing("codex", "\n".join(given)) == "All is well. COMPLETED"
    assert doing("claude", "") == "" == doing("codex", '{"type":"turn.started"}')


def test_pieces_of_a_message_are_told_as_one():
    piece = '{"type":"message","role":"assistant","content":"%s","delta":true}'
    said = told("gemini", [piece % "Hello", piece % " you", '{"type":"result","stats":{}}'])
    assert [(each.who, each.text) for each in said] == [(AGENT, "Hello you"), (END, "ended")]


def test_a_long_answer_is_cut_and_counted():
    content = [{"type": "tool_result", "content": "x" * 999 + "\n\nsecond\nthird"}]
    (said,) = told("claude", [json.dumps({"type": "user", "message": {"content": content}})])
    assert said.text.startswith("xxx") and said.text.endswith("… (and 2 more lines)")
    assert len(said.text) < 250


def test_plain_text_stays_as_it_is():
    assert [each.text for each in told("text", ["  a line", "", "COMPLETED: x"])] == [
        "  a line", "COMPLETED: x",
    ]  # fmt: skip


KEYS = st.sampled_from(
    ["type", "subtype", "message", "content", "item", "part", "data", "error", "usage", "changes",
     "state", "tool", "name", "input", "text", "command", "stats", "result", "x"]
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
TYPES = st.sampled_from(
    ["system", "assistant", "user", "result", "item.completed", "item.started", "turn.failed",
     "error", "message", "tool_use", "tool_result", "text", "step_finish", "assistant.message",
     "tool.execution_start", "tool.execution_complete", "rate_limit_event", "session.error"]
)  # fmt: skip


@given(st.sampled_from(sorted(STREAMS)), TYPES, st.dictionaries(KEYS, VALUES, max_size=5))
def test_no_shape_of_an_event_makes_it_fail(stream, kind, event):
    for said in told(stream, [json.dumps({**event, "type": kind})]):
        assert isinstance(said.text, str) and said.line == said.line


@given(st.sampled_from([*sorted(STREAMS), "text", "unknown"]), st.text())
def test_no_line_makes_it_fail(stream, line):
    told(stream, [line, "{" + line, '{"type":' + line, "[" * 10_000])
