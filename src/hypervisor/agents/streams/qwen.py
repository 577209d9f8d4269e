"""The stream of qwen: like claude's, but without cost. The tokens of its result are those of the
whole session, an error of the provider is a message in brackets, and a run that has used up its
turns ends without a result."""

from __future__ import annotations

from hypervisor.agents import json_fields as f
from hypervisor.agents import stream_events as ev
from hypervisor.agents import stream_state as kinds
from hypervisor.agents.stream_errors import stream_error
from hypervisor.agents.stream_events import Update
from hypervisor.agents.stream_state import StreamState
from hypervisor.agents.streams import claude
from hypervisor.queue.agent_session import Tokens

FAILED = "[API Error:"
# Its messages on stderr; anything else there may come from a tool.
PLAIN = {"No saved session found": kinds.RESUME, "max session turns": kinds.TURNS}


def _parse_event(state: StreamState, event: f.Object) -> Update:
    kind = f.text(event, "type")
    if kind == "system" and event.get("subtype") == "init":
        return claude.started(state, event)
    if kind == "assistant":
        return _answered(state, event)
    if kind == "user":
        return claude.worked(state, event)
    return _ended(state, event) if kind == "result" else Update(state)


def _answered(state: StreamState, event: f.Object) -> Update:
    text = "".join(f.text(part, "text") for part in f.items(event.get("message"), "content"))
    before, failed, _ = text.partition(FAILED)
    if not failed or not text.rstrip().endswith("]"):
        return claude.answered(state, event, _tokens)
    error = stream_error(text[len(before) :])
    if before and error.kind in (kinds.SERVER, kinds.OTHER):  # the answer had begun
        error = error._replace(kind=kinds.STREAM)
    return Update(state.with_error(error), tuple(claude.content_events(event)))


def _tokens(usage: f.Object) -> Tokens:
    """The input includes what came from the cache."""
    total = claude.tokens_of(usage)
    return total._replace(input=max(total.input - total.cached, 0))


def _ended(state: StreamState, event: f.Object) -> Update:
    failed = event.get("is_error") is True
    state = state._replace(
        ended=True,
        ok=not failed,
        tokens=_tokens(f.member(event, "usage")).minus(state.tokens_before),
        turns=f.count(event, "num_turns") or state.turns,
    )
    for denial in f.items(event, "permission_denials"):
        state = state.with_denied(f.text(denial, "tool_name"))
    if isinstance(event.get("structured_result"), dict):
        state = state._replace(result=event["structured_result"])
    state = state.with_session(f.text(event, "session_id"))
    if failed:
        state = _failed_run(state, event)
    else:
        state = state._replace(error=None).with_message(f.text(event, "result"))
    return Update(state, claude.end_events(event))


def _failed_run(state: StreamState, event: f.Object) -> StreamState:
    error = stream_error(f.text(f.member(event, "error"), "message") or f.text(event, "subtype"))
    if state.error is not None and state.error.kind == kinds.STREAM:
        error = error._replace(kind=kinds.STREAM)
    return state.with_error(error)


parse = ev.json_lines(_parse_event, ev.text_errors(PLAIN))
