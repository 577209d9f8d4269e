"""Transcripts for people: recordings of the real programs, and arbitrary lines."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypervisor.agents.profile import STREAMS
from hypervisor.agents.transcript import (
    AGENT,
    ANSWER,
    END,
    ERROR,
    NOTE,
    TOOL,
    TranscriptRenderer,
    current_activity,
)

RECORDED = Path(__file__).resolve().parents[1] / "fixtures" / "streams"
JSON_STREAMS = [stream for stream in STREAMS if stream != "text"]
ALL = sorted(RECORDED.glob("*/*.jsonl"))


def lines(path):
    return [json.loads(line)["line"] for line in path.read_text().splitlines()[1:]]


def render(stream, given):
    renderer = TranscriptRenderer(stream)
    return [*(shown for line in given for shown in renderer.feed(line)), *renderer.flush()]


@pytest.mark.parametrize("stream", [name for name in JSON_STREAMS if name != "acp"])
def test_a_run_that_went_well_is_shown_in_order(stream):
    transcript = render(stream, lines(RECORDED / stream / "success.jsonl"))
    story = [shown for shown in transcript if shown.who != NOTE]
    assert [shown.who for shown in story] == [TOOL, ANSWER, TOOL, ANSWER, AGENT, END]
    assert story[0].text == "echo hello from the agent"
    assert story[1].text.startswith("hello from the agent")
    assert (story[2].name, story[2].text) == ("hypervisor.complete_task", "looked at it")
    assert story[4].text == "All is well.\nCOMPLETED"


@pytest.mark.parametrize("path", ALL, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_no_event_is_shown_as_it_is_and_none_is_shown_twice(path):
    transcript = render(path.parent.name, lines(path))
    assert bool(transcript) == bool(lines(path))  # opencode retries silently
    assert not [shown for shown in transcript if shown.text.lstrip().startswith('{"type"')]
    plain = [shown.text for shown in transcript if shown.who not in (TOOL, ANSWER)]
    assert not [text for text, after in pairwise(plain) if text == after]


@pytest.mark.parametrize("stream", ["claude", "codex", "gemini", "copilot"])
def test_a_limit_is_shown_as_an_error(stream):
    transcript = render(stream, lines(RECORDED / stream / "http-429.jsonl"))
    assert any("429" in shown.text or "ate limit" in shown.text for shown in transcript)
    assert ERROR in {shown.who for shown in transcript}


def test_what_an_agent_does_now_is_the_last_it_said_or_began():
    given = lines(RECORDED / "codex" / "success.jsonl")
    assert current_activity("codex", "\n".join(given[:4])) == "shell: echo hello from the agent"
    assert current_activity("codex", "\n".join(given)) == "All is well. COMPLETED"
    assert (
        current_activity("claude", "") == "" == current_activity("codex", '{"type":"turn.started"}')
    )


def test_pieces_of_a_message_are_shown_as_one():
    piece = '{"type":"message","role":"assistant","content":"%s","delta":true}'
    transcript = render("gemini", [piece % "Hello", piece % " you", '{"type":"result","stats":{}}'])
    assert [(shown.who, shown.text) for shown in transcript] == [
        (AGENT, "Hello you"),
        (END, "ended"),
    ]


def test_calls_that_run_at_once_are_shown_once():
    call = '{"type":"item.%s","item":{"id":"%s","type":"command_execution","command":"%s"}}'
    begun = [call % ("started", "1", "ls"), call % ("started", "2", "pwd")]
    ended = [call % ("completed", "1", "ls"), call % ("completed", "2", "pwd")]
    transcript = render("codex", [*begun, *ended, call % ("completed", "3", "id")])
    assert [shown.text for shown in transcript if shown.who == TOOL] == ["ls", "pwd", "id"]


def test_a_long_answer_is_cut_and_counted():
    content = [{"type": "tool_result", "content": "x" * 999 + "\n\nsecond\nthird"}]
    (shown,) = render("claude", [json.dumps({"type": "user", "message": {"content": content}})])
    assert shown.text.startswith("xxx") and shown.text.endswith("… (and 2 more lines)")
    assert len(shown.text) < 250


def test_plain_text_stays_as_it_is():
    lines = ["  a line", "", "again", "again", "COMPLETED: x"]
    assert [shown.text for shown in render("text", lines)] == [line for line in lines if line]


KEYS = st.sampled_from(
    [
        "type",
        "subtype",
        "message",
        "content",
        "item",
        "part",
        "data",
        "error",
        "usage",
        "changes",
        "state",
        "tool",
        "name",
        "input",
        "text",
        "command",
        "stats",
        "result",
        "x",
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
TYPES = st.sampled_from(
    [
        "system",
        "assistant",
        "user",
        "result",
        "item.completed",
        "item.started",
        "turn.failed",
        "error",
        "message",
        "tool_use",
        "tool_result",
        "text",
        "step_finish",
        "assistant.message",
        "tool.execution_start",
        "tool.execution_complete",
        "rate_limit_event",
        "session.error",
    ]
)


@given(st.sampled_from(JSON_STREAMS), TYPES, st.dictionaries(KEYS, VALUES, max_size=5))
def test_no_shape_of_an_event_makes_it_fail(stream, kind, event):
    for shown in render(stream, [json.dumps({**event, "type": kind})]):
        assert isinstance(shown.text, str) and shown.line == shown.line


@given(st.sampled_from([*JSON_STREAMS, "text", "unknown"]), st.text())
def test_no_line_makes_it_fail(stream, line):
    render(stream, [line, "{" + line, '{"type":' + line, "[" * 10_000])
