"""The stream of agents that speak the Agent Client Protocol, as acp/bridge.py prints it.

The usage is that of the last prompt; the cost is that of the whole session."""

from __future__ import annotations

from hypervisor.agents import json_fields as f
from hypervisor.agents import stream_events as ev
from hypervisor.agents import stream_state as kinds
from hypervisor.agents.stream_errors import stream_error
from hypervisor.agents.stream_events import Update
from hypervisor.agents.stream_state import StreamError, StreamState
from hypervisor.queue.agent_session import Tokens

SPEAKING = "speaking"  # the last event was a piece of a message
AUTH_REQUIRED = -32000
TURNS = ("max_turn_requests", "max_tokens")


def _parse_event(state: StreamState, event: f.Object) -> Update:
    kind = f.text(event, "type")
    if kind == "message":
        return _message(state, f.text(event, "text"))
    state = state._replace(note="")
    if kind == "session":
        session = f.text(event, "id")
        return Update(state.with_session(session)._replace(mcp=""), (ev.session_note(session),))
    if kind == "tool":
        name, given = f.text(event, "name"), f.text(event, "input")
        state = state._replace(error=None, turns=state.turns + 1).with_activity(f"{name} {given}")
        return Update(state, (ev.ToolCall(name, given),))
    if kind == "tool_result":
        failed = event.get("failed") is True
        tools = state.tools + (not failed)
        return Update(
            state._replace(tools=tools), (ev.ToolResult(f.text(event, "content"), failed),)
        )
    if kind == "denied":
        return Update(state.with_denied(f.text(event, "name"))._replace(grantable=True))
    if kind == "usage":
        tokens = state.tokens.plus(_tokens(f.member(event, "usage")))
        return Update(state._replace(tokens=tokens))
    if kind == "cost" and event.get("currency") == "USD":
        return Update(_with_cost(state, event))
    if kind == "error":
        return _failed(state, event)
    return _ended(state, event) if kind == "end" else Update(state)


def _message(state: StreamState, piece: str) -> Update:
    continues = state.note == SPEAKING
    turns = state.turns if continues else state.turns + 1
    before = state.message if continues else ""
    state = state._replace(error=None, note=SPEAKING, turns=turns)
    return Update(state.with_message(piece, before), (ev.Message(piece, partial=True),))


def _with_cost(state: StreamState, event: f.Object) -> StreamState:
    amount = event.get("amount")
    if isinstance(amount, bool) or not isinstance(amount, int | float):
        return state
    return state._replace(cost=max(float(amount) - state.cost_before, 0.0))


def _failed(state: StreamState, event: f.Object) -> Update:
    text = f.text(event, "message")
    if state.error is not None and state.error.kind == kinds.RESUME:
        return Update(state)  # the same failure, reported once more
    if event.get("kind") == "resume":
        error = StreamError(kinds.RESUME, text)
    elif event.get("code") == AUTH_REQUIRED:
        error = StreamError(kinds.AUTH, text)
    else:
        error = stream_error(text)
    return Update(state.with_error(error), (ev.Failure(text),))


def _ended(state: StreamState, event: f.Object) -> Update:
    reason, tokens = f.text(event, "reason"), _tokens(f.member(event, "usage"))
    tokens = tokens if any(tokens) else state.tokens  # some report every call instead
    state = state._replace(ended=True, ok=reason == "end_turn", tokens=tokens)
    if reason in TURNS:
        state = state.with_error(StreamError(kinds.TURNS, f"stopped: {reason}"))
    elif reason != "end_turn" and state.error is None:
        state = state.with_error(stream_error(f"stopped: {reason}"))
    return Update(state, (ev.End(sum(tokens), cost=state.cost),))


def _tokens(usage: f.Object) -> Tokens:
    written = f.count(usage, "output_tokens") + f.count(usage, "thought_tokens")
    return Tokens(f.count(usage, "input_tokens"), written, f.count(usage, "cached_read_tokens"))


parse = ev.json_lines(_parse_event, ev.text_errors({}))
