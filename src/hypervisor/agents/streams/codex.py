"""The stream of codex (`exec --json`). It reports no cost; its tokens are those of the whole
session, including those read from the cache. An item of type `error` is a warning; an `error`
that begins with "Reconnecting" is over when the next answer arrives."""

from __future__ import annotations

from hypervisor.agents import json_fields as f
from hypervisor.agents import stream_events as ev
from hypervisor.agents import stream_state as kinds
from hypervisor.agents.stream_errors import stream_error
from hypervisor.agents.stream_events import Update
from hypervisor.agents.stream_state import StreamError, StreamState, one_line
from hypervisor.queue.agent_session import Tokens

RETRYING = "Reconnecting..."
CALLS = ("command_execution", "mcp_tool_call", "web_search")
REFUSED = "requires approval"  # "MCP tool call requires approval, but approval policy is never"
SHELLS = ("bash -lc ", "/bin/bash -lc ", "/usr/bin/bash -lc ", "/bin/sh -c ", "sh -c ")
# Its messages on stderr.
NO_SERVER = "required MCP servers failed to initialize"
NO_SESSION = "no rollout found"
FATAL = "Error: "
REFUSED_REQUEST = 400
MAX_OPEN = 2_000  # characters of the ids of calls that have not ended


def _parse_event(state: StreamState, event: f.Object) -> Update:
    kind = f.text(event, "type")
    if kind == "thread.started":
        session = f.text(event, "thread_id")
        return Update(state.with_session(session), (ev.session_note(session),))
    if kind == "turn.started":
        return Update(state._replace(turns=state.turns + 1, ended=False, ok=None))
    if kind == "turn.completed":
        return _completed(state, f.member(event, "usage"))
    if kind == "turn.failed":
        state = state._replace(ended=True, ok=False)
        return _failed(state, f.member(event, "error"))
    if kind == "error":
        return _failed(state, event)
    if kind in ("item.started", "item.updated", "item.completed"):
        return _item(state, f.member(event, "item"), kind == "item.completed")
    return Update(state)


def _completed(state: StreamState, usage: f.Object) -> Update:
    read, cached = f.count(usage, "input_tokens"), f.count(usage, "cached_input_tokens")
    written = f.count(usage, "output_tokens")
    tokens = Tokens(max(read - cached, 0), written, cached).minus(state.tokens_before)
    state = state._replace(tokens=tokens, error=None, ended=True, ok=True)
    return Update(state, (ev.End(read + written),))


def _failed(state: StreamState, failure: f.Object) -> Update:
    """For a request that was refused with 400, only the body is reported."""
    text = f.text(failure, "message")
    body = f.text(f.member(f.parse_object(text), "error"), "message")
    if body:
        error = stream_error(body, REFUSED_REQUEST)
    else:
        error = stream_error(text, retrying=text.startswith(RETRYING))
    return Update(state.with_error(error), (ev.Failure(failure.get("message")),))


def _item(state: StreamState, item: f.Object, completed: bool) -> Update:
    kind = f.text(item, "type")
    if kind == "error":
        return Update(state, (ev.Note(f.text(item, "message")),) if completed else ())
    state = state._replace(error=None)
    if kind == "agent_message":
        text = f.text(item, "text")
        return Update(state.with_message(text), (ev.Message(text),) if completed else ())
    if kind == "file_change":
        changes = f.items(item, "changes")
        edits = ", ".join(f"{c.get('kind', 'change')} {c.get('path', '')}" for c in changes)
        events = (ev.ToolCall("edit", edits),) if completed else ()
        return Update(_worked(state, item, completed), events)
    return _call(state, item, completed) if kind in CALLS else Update(state)


def _call(state: StreamState, item: f.Object, completed: bool) -> Update:
    """Some calls are reported only when they end."""
    id, open_calls = f.text(item, "id"), state.note.split()
    events: list[ev.Event] = [] if id in open_calls else [_tool_call(item)]
    if completed and item.get("type") != "web_search":
        content = item.get("aggregated_output") or item.get("error") or item.get("result")
        failed = item.get("status") == "failed" or bool(item.get("exit_code"))
        events.append(ev.ToolResult(content, failed))
    still_open = [call for call in open_calls if call != id] + ([] if completed else [id])
    state = state._replace(note=" ".join(still_open)[-MAX_OPEN:])
    return Update(_worked(state, item, completed), tuple(events))


def _tool_call(item: f.Object) -> ev.ToolCall:
    if item.get("type") == "mcp_tool_call":
        name = f"{item.get('server', '')}.{item.get('tool', '')}"
        return ev.ToolCall(name, item.get("arguments"))
    if item.get("type") == "web_search":
        return ev.ToolCall("search", item.get("query"))
    command = f.text(item, "command")
    for shell in SHELLS:
        if command.startswith(shell):
            command = command[len(shell) :].strip("'\"")
    return ev.ToolCall("shell", command)


def _worked(state: StreamState, item: f.Object, completed: bool) -> StreamState:
    if not completed:
        target = f.text(item, "command") or f.text(item, "tool") or f.text(item, "query")
        return state.with_activity(f"{f.text(item, 'type')} {target}")
    if item.get("server") == "hypervisor" and item.get("status") == "completed":
        state = state._replace(mcp="ready")
    error = f.text(f.member(item, "error"), "message")
    if item.get("status") == "declined" or REFUSED in error:
        return state.with_denied(f.text(item, "tool") or f.text(item, "type"))
    return state._replace(tools=state.tools + 1)


def _parse_text(state: StreamState, line: str) -> StreamState:
    if NO_SERVER in line:
        return state._replace(mcp="dead", activity=one_line(line))
    if not line.startswith(FATAL):
        return state
    error = stream_error(line.strip())
    if NO_SESSION in line:
        return state.with_error(StreamError(kinds.RESUME, error.text))
    if state.session or state.mcp == "dead":
        return state
    return state.with_error(error)


parse = ev.json_lines(_parse_event, _parse_text)
