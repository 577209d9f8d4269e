"""What a stream parser returns for each line: the new state, and events for the transcript.

Events contain the stream's text unchanged; transcript.py shortens it, so that a worker, which only
needs the state, does not pay for that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hypervisor.agents.json_fields import Object, parse_object
from hypervisor.agents.stream_state import ErrorKind, StreamError, StreamState, storable
from hypervisor.core.records import NamedTuple

STACK_TRACE = ("at ", "}", "{")  # how the lines of a JavaScript stack trace begin


class Message(NamedTuple):
    """The agent's text. `partial`: a piece of it, the rest follows."""

    text: str
    partial: bool = False


class ToolCall(NamedTuple):
    name: str
    input: Any


class ToolResult(NamedTuple):
    content: Any
    failed: bool


class Failure(NamedTuple):
    content: Any


class Note(NamedTuple):
    text: str


class End(NamedTuple):
    """The end of a session. `text` replaces the figures if the stream has none."""

    tokens: int = 0
    turns: int | None = None
    cost: float | None = None
    text: str = ""


Event = Message | ToolCall | ToolResult | Failure | Note | End


class Update(NamedTuple):
    state: StreamState
    events: tuple[Event, ...] = ()


Parse = Callable[[StreamState, str], Update]
ParseText = Callable[[StreamState, str], StreamState]


def json_lines(
    parse_event: Callable[[StreamState, Object], Update], parse_text: ParseText
) -> Parse:
    """A parser of JSON lines. Other lines are warnings of the program, or partial lines."""

    def parse(state: StreamState, line: str) -> Update:
        event = parse_object(line)
        if event is not None:
            return parse_event(state, event)
        text = line.strip()
        is_note = text and not text.startswith(STACK_TRACE)
        return Update(parse_text(state, line), (Note(text),) if is_note else ())

    return parse


def text_errors(kinds: Mapping[str, ErrorKind]) -> ParseText:
    """Finds errors by their text; the first of each kind counts."""

    def parse_text(state: StreamState, line: str) -> StreamState:
        if state.error is not None or state.ended:
            return state
        kind = next((kinds[words] for words in kinds if words in line), None)
        return state.with_error(StreamError(kind, storable(line.strip()))) if kind else state

    return parse_text


def session_note(session: str, model: str = "") -> Note:
    parts = (f"session {session}" if session else "", f"model {model}" if model else "")
    return Note(", ".join(filter(None, parts)))
