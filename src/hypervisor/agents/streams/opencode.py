"""The stream of opencode (`run --format json`). Each step reports its own tokens and cost; the
cost is 0 if the model's price is unknown. The last step's reason is not "tool-calls". Retries
are not reported, but a step begins twice."""

from __future__ import annotations

import re

from hypervisor.agents import json_fields as f
from hypervisor.agents import stream_events as ev
from hypervisor.agents import stream_state as kinds
from hypervisor.agents.stream_errors import parse_retry_after, stream_error
from hypervisor.agents.stream_events import Update
from hypervisor.agents.stream_state import StreamError, StreamState
from hypervisor.queue.agent_session import Tokens

OPEN = "a step"  # that has begun and not ended
NO_SESSION = re.compile(r"^(?:\x1b\[[0-9;]*m)*Error: (?:\x1b\[[0-9;]*m)*Session not found")
CONTINUES = ("tool-calls", "unknown")
REFUSED = ("rejected permission to use", "a rule which prevents you from using")


def _parse_event(state: StreamState, event: f.Object) -> Update:
    session = f.text(event, "sessionID")
    update = _parse_step(state.with_session(session), event)
    if state.session or not session:
        return update
    return update._replace(events=(ev.session_note(session), *update.events))


def _parse_step(state: StreamState, event: f.Object) -> Update:
    kind, part = f.text(event, "type"), f.member(event, "part")
    if kind == "step_start":
        return Update(_began(state))
    if kind == "text":
        text = f.text(part, "text")
        return Update(state._replace(error=None).with_message(text), (ev.Message(text),))
    if kind == "tool_use":
        return _called(state._replace(error=None), part)
    if kind == "step_finish":
        return _finished(state, part)
    return _failed(state, f.member(event, "error")) if kind == "error" else Update(state)


def _began(state: StreamState) -> StreamState:
    state = state._replace(ended=False, ok=None)
    if state.note != OPEN:
        return state._replace(note=OPEN)
    return state.with_error(StreamError(kinds.STREAM, "the answer was cut off", retrying=True))


def _called(state: StreamState, part: f.Object) -> Update:
    name, call = f.text(part, "tool"), f.member(part, "state")
    failed, error = call.get("status") == "error", f.text(call, "error")
    events: tuple[ev.ToolCall | ev.ToolResult, ...] = (ev.ToolCall(name, call.get("input")),)
    if failed or call.get("status") == "completed":
        events = (*events, ev.ToolResult(call.get("output") or call.get("error"), failed))
    if failed and any(words in error for words in REFUSED):
        return Update(state.with_denied(name), events)
    state = state.with_activity(f"{name} {f.text(call, 'title')}")
    if name.startswith("hypervisor_"):
        state = state._replace(mcp="ready")
    return Update(state._replace(tools=state.tools + 1), events)


def _finished(state: StreamState, part: f.Object) -> Update:
    tokens, cache = f.member(part, "tokens"), f.member(part, "tokens", "cache")
    read, written = f.count(tokens, "input"), f.count(tokens, "output")
    used = Tokens(
        read + f.count(cache, "write"),
        written + f.count(tokens, "reasoning"),
        f.count(cache, "read"),
    )
    cost = f.amount(part, "cost")
    state = state._replace(
        tokens=state.tokens.plus(used),
        cost=(state.cost or 0.0) + (cost or 0.0) or None,
        turns=state.turns + 1,
        error=None,
        note="",
    )
    reason = f.text(part, "reason")
    if reason in CONTINUES:
        return Update(state)
    state = state._replace(ended=True, ok=reason == "stop")
    return Update(state, (ev.End(read + written, cost=cost),))


def _failed(state: StreamState, error: f.Object) -> Update:
    data = f.member(error, "data")
    text = f.text(data, "message") or f.text(error, "name")
    header = f.text(f.member(data, "responseHeaders"), "retry-after")
    reset_at, retry_after = parse_retry_after(header)
    status = f.count(data, "statusCode") or None
    failure = stream_error(text, status, reset_at=reset_at, retry_after=retry_after)
    return Update(state._replace(ended=True, ok=False).with_error(failure), (ev.Failure(text),))


def _parse_text(state: StreamState, line: str) -> StreamState:
    if NO_SESSION.match(line):
        return state.with_error(StreamError(kinds.RESUME, "Session not found"))
    return state


parse = ev.json_lines(_parse_event, _parse_text)
