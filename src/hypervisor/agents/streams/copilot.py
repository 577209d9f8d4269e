"""The stream of copilot (`--output-format json`). It names its session at the very end, and its
tokens only in a file (`--usage-output-file`). After SIGTERM it closes its stream as after a
success, but with an `abort` event before."""

from __future__ import annotations

from collections.abc import Mapping

from hypervisor.agents import json_fields as f
from hypervisor.agents import stream_events as ev
from hypervisor.agents import stream_state as kinds
from hypervisor.agents.stream_errors import stream_error
from hypervisor.agents.stream_events import Update
from hypervisor.agents.stream_state import McpState, StreamState
from hypervisor.queue.agent_session import Tokens

SERVER = "hypervisor"
ABORTED = "aborted"
MCP_STATES: Mapping[str, McpState] = {"connected": "ready", "failed": "dead"}
NO_SESSION = "No session, task, or name matched"


def _parse_event(state: StreamState, event: f.Object) -> Update:
    kind, data = f.text(event, "type"), f.member(event, "data")
    if kind == "session.mcp_server_status_changed" and data.get("serverName") == SERVER:
        return Update(state._replace(mcp=MCP_STATES.get(f.text(data, "status"), state.mcp)))
    if kind == "session.start":
        note = ev.session_note(f.text(data, "sessionId"), f.text(data, "selectedModel"))
        return Update(state, (note,))
    if kind == "assistant.message":
        text = f.text(data, "content")
        state = state._replace(error=None, turns=state.turns + 1)
        return Update(state.with_message(text), (ev.Message(text),))
    if kind.startswith("tool."):
        return _tool(state, kind, data)
    if kind == "model.call_failure":  # it tries again
        return Update(_with_error(state, data, "errorMessage", retrying=True))
    if kind == "session.error":
        return Update(_with_error(state, data, "message"), (ev.Failure(data.get("message")),))
    if kind == "abort":
        return Update(state._replace(note=ABORTED))
    return _ended(state, event) if kind == "result" else Update(state)


def _tool(state: StreamState, kind: str, data: f.Object) -> Update:
    if kind == "tool.execution_start":
        name, arguments = f.text(data, "toolName"), f.member(data, "arguments")
        activity = f"{name} {f.text(arguments, 'command')}"
        return Update(state.with_activity(activity), (ev.ToolCall(name, data.get("arguments")),))
    if kind != "tool.execution_complete":
        return Update(state)
    error, failed = f.member(data, "error"), data.get("success") is False
    result = ev.ToolResult(error.get("message") if failed else data.get("result"), failed)
    if data.get("success") is not True and error.get("code") == "denied":
        return Update(state.with_denied(state.activity.partition(" ")[0]), (result,))
    return Update(state._replace(tools=state.tools + 1), (result,))


def _with_error(
    state: StreamState, data: f.Object, field: str, retrying: bool = False
) -> StreamState:
    status = f.count(data, "statusCode") or None
    error = stream_error(f.text(data, field), status, retrying=retrying)
    if status is None and error.kind == kinds.SERVER:  # inside an answer that had begun with 200
        error = error._replace(kind=kinds.STREAM)
    return state.with_error(error)


def _ended(state: StreamState, event: f.Object) -> Update:
    code = event.get("exitCode")
    state = state.with_session(f.text(event, "sessionId"))
    if state.note != ABORTED:
        state = state._replace(ended=True, ok=code == 0)
    return Update(state, (ev.End(text=f"ended with {code}"),))


def add_usage(state: StreamState, usage: str) -> StreamState:
    """Add the figures of the usage file after the program has ended."""
    models = f.member(f.parse_object(usage.replace("\n", " ")), "modelMetrics")
    if not models:
        return state
    used = [f.member(models, name, "usage") for name in models]
    cached = sum(f.count(usage, "cacheReadTokens") for usage in used)
    read = sum(f.count(usage, "inputTokens") for usage in used)
    written = sum(f.count(usage, "outputTokens") for usage in used)
    total = Tokens(max(read - cached, 0), written, cached)  # of the whole session
    return state._replace(tokens=total.minus(state.tokens_before))


parse = ev.json_lines(_parse_event, ev.text_errors({NO_SESSION: kinds.RESUME}))
