"""The stream of gemini (`-o stream-json`). Messages come in pieces. It retries after a limit
without an event in the stream, but with a message on stderr; after an error inside an answer it
exits with 0. Tools that are not allowed are not offered to the model, so none is ever refused."""

from __future__ import annotations

import re

from hypervisor.agents import json_fields as f
from hypervisor.agents import stream_events as ev
from hypervisor.agents import stream_state as kinds
from hypervisor.agents.stream_errors import stream_error
from hypervisor.agents.stream_events import Update
from hypervisor.agents.stream_state import StreamError, StreamState, storable
from hypervisor.queue.agent_session import Tokens

SPEAKING = "speaking"  # the last event was a piece of a message
FATAL = {"FatalTurnLimitedError": kinds.TURNS, "FatalAuthenticationError": kinds.AUTH}
# Its messages on stderr.
RETRYING = re.compile(r"^Attempt \d+ failed(?: with status (\d{3}))?(\. Retrying)?")
DELAY = re.compile(r"^\s*retryDelayMs: (\d{1,12})\b")
NO_SERVER = "MCP issues detected"
NO_SESSION = "Error resuming session"


def _parse_event(state: StreamState, event: f.Object) -> Update:
    kind = f.text(event, "type")
    if kind == "message":
        return _message(state, event) if event.get("role") == "assistant" else Update(state)
    state = state._replace(note="")
    if kind == "init":
        session, model = f.text(event, "session_id"), f.text(event, "model")
        return Update(state.with_session(session), (ev.session_note(session, model),))
    if kind == "tool_use":
        name, parameters = f.text(event, "tool_name"), f.member(event, "parameters")
        state = state._replace(error=None, turns=state.turns + 1)
        state = state.with_activity(f"{name} {f.text(parameters, 'command')}")
        return Update(state, (ev.ToolCall(name, parameters),))
    if kind == "tool_result":
        content = event.get("output") or f.member(event, "error").get("message")
        result = ev.ToolResult(content, event.get("status") == "error")
        return Update(state._replace(tools=state.tools + 1), (result,))
    if kind == "error":
        if event.get("severity") != "warning":
            state = state.with_error(stream_error(f.text(event, "message")))
        return Update(state, (ev.Failure(event.get("message")),))
    return _ended(state, event) if kind == "result" else Update(state)


def _message(state: StreamState, event: f.Object) -> Update:
    piece = f.text(event, "content")
    continues = state.note == SPEAKING and event.get("delta") is True
    turns = state.turns if continues else state.turns + 1
    before = state.message if continues else ""
    state = state._replace(error=None, note=SPEAKING, turns=turns)
    return Update(state.with_message(piece, before), (ev.Message(piece, partial=True),))


def _ended(state: StreamState, event: f.Object) -> Update:
    ok = event.get("status") == "success"
    stats = f.member(event, "stats")
    read, cached = f.count(stats, "input_tokens"), f.count(stats, "cached")
    written = f.count(stats, "output_tokens")
    end = ev.End(read + written)
    tokens = Tokens(max(read - cached, 0), written, cached)
    state = state._replace(ended=True, ok=ok, tokens=tokens)
    if ok:
        return Update(state, (end,))  # an error that nothing followed stays: success proves nothing
    reported = f.member(event, "error")
    text = f.text(reported, "message")
    if text or state.error is None:
        error = stream_error(text or "exited with an error")
        kind = FATAL.get(f.text(reported, "type"), error.kind)
        state = state.with_error(error._replace(kind=kind))
    failure = ev.Failure(text or event.get("status"))
    return Update(state, (failure, end))


def _parse_text(state: StreamState, line: str) -> StreamState:
    if NO_SERVER in line:
        return state._replace(mcp="dead")
    if state.ended:
        return state
    if line.startswith(NO_SESSION):
        return state.with_error(StreamError(kinds.RESUME, storable(line.strip())))
    retry = RETRYING.match(line)
    if retry is None:
        return _delayed(state, line)
    status = int(retry[1]) if retry[1] else None
    return state.with_error(stream_error(line.strip(), status, retrying=bool(retry[2])))


def _delayed(state: StreamState, line: str) -> StreamState:
    """The provider's delay, from the text of an error."""
    delay = DELAY.match(line)
    if delay is None or state.error is None or state.error.kind != kinds.QUOTA:
        return state
    return state._replace(error=state.error._replace(retry_after=int(delay[1])))


parse = ev.json_lines(_parse_event, _parse_text)
