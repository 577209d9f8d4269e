"""The stream of claude (`--output-format stream-json`), also used by cursor-agent.

`is_error` marks a failed run; `subtype` says "success" even then. Money and `modelUsage` are sums
over the whole session, `model_usage_since_last_result` is this run's. Tokens of a message that is
still being written are counted as they were when it began, so until the result they are a floor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hypervisor.agents import json_fields as f
from hypervisor.agents import stream_events as ev
from hypervisor.agents import stream_state as kinds
from hypervisor.agents.stream_errors import stream_error
from hypervisor.agents.stream_events import Update
from hypervisor.agents.stream_state import (
    MAX_ACTIVITY_LENGTH,
    MAX_DENIED,
    StreamError,
    StreamState,
    storable,
)
from hypervisor.queue.agent_session import Tokens

SERVER = "hypervisor"
DEAD = ("failed", "disconnected", "error", "needs-auth")
REPORT_TOOLS = ("StructuredOutput", "structured_output")  # they only hand over a result
BY_SUBTYPE = {"error_max_turns": kinds.TURNS, "error_max_budget_usd": kinds.BUDGET}
OWN_PAUSE = 700  # ms it waits at most before its second try, then doubled: longer is Retry-After
NO_SESSION = "No conversation found with session ID"


def _parse_event(state: StreamState, event: f.Object) -> Update:
    kind, subtype = f.text(event, "type"), f.text(event, "subtype")
    if kind == "system" and subtype == "init":
        return started(state, event)
    if kind == "system" and subtype == "api_retry":
        return _retry(state, event)
    if kind == "system" and subtype == "permission_denied":
        return Update(state.with_denied(f.text(event, "tool_name")))
    if kind == "rate_limit_event":
        return _rate_limited(state, f.member(event, "rate_limit_info"))
    if kind == "assistant":
        failed = event.get("is_api_error_message") is True
        return _failed_answer(state, event) if failed else answered(state, event)
    if kind == "user":
        return worked(state, event)
    return _ended(state, event) if kind == "result" else Update(state)


def started(state: StreamState, event: f.Object) -> Update:
    session = f.text(event, "session_id")
    state = state.with_session(session)
    for server in f.items(event, "mcp_servers"):
        if server.get("name") == SERVER:
            status = server.get("status")
            mcp = "ready" if status == "connected" else "dead" if status in DEAD else state.mcp
            state = state._replace(mcp=mcp)
    return Update(state, (ev.session_note(session, f.text(event, "model")),))


def answered(
    state: StreamState, event: f.Object, count: Callable[[f.Object], Tokens] | None = None
) -> Update:
    """The model answered, so an earlier error is over. A message is split into several events, one
    per part, all with the same id and the same tokens."""
    message = f.member(event, "message")
    id = f.text(message, "id")
    is_new = not id or id != state.note
    state = state._replace(error=None, ended=False, ok=None)
    if is_new:
        tokens = state.tokens.plus((count or tokens_of)(f.member(message, "usage")))
        state = state._replace(tokens=tokens, turns=state.turns + 1, note=id)
    events = tuple(content_events(event))
    for part in events:
        if isinstance(part, ev.Message):
            state = state.with_message(part.text)
        elif isinstance(part, ev.ToolCall):
            state = _called(state, part)
    return Update(state, events)


def content_events(event: f.Object) -> Iterator[ev.Event]:
    for part in f.items(f.member(event, "message"), "content"):
        kind = part.get("type")
        if kind == "text" and event.get("type") == "assistant":
            yield ev.Message(f.text(part, "text"))
        elif kind == "tool_use":
            yield ev.ToolCall(f.text(part, "name"), part.get("input"))
        elif kind == "tool_result":
            yield ev.ToolResult(part.get("content"), bool(part.get("is_error")))


def _called(state: StreamState, call: ev.ToolCall) -> StreamState:
    if call.name in REPORT_TOOLS:
        # Its result will be counted like that of a real tool.
        return state._replace(result=f.member(call.input) or None, tools=state.tools - 1)
    texts = (f.text(call.input, name) for name in ("command", "file_path", "path"))
    return state.with_activity(f"{call.name} {next(filter(None, texts), '')}")


def worked(state: StreamState, event: f.Object) -> Update:
    """Results of tools. A tool that failed was run, unless it was refused."""
    accepted = {
        f.text(meta, "id")
        for meta in f.items(event, "tool_result_meta")
        if f.member(meta, "permission_decision").get("decision") == "accept"
    }
    carried_out = 0
    for part in f.items(f.member(event, "message"), "content"):
        if part.get("type") == "tool_result":
            failed = part.get("is_error") is True
            carried_out += not failed or f.text(part, "tool_use_id") in accepted
    state = state._replace(tools=state.tools + carried_out)
    return Update(state, tuple(content_events(event)))


def tokens_of(usage: f.Object) -> Tokens:
    """Tokens written to the cache count as uncached input."""
    read = f.count(usage, "input_tokens") + f.count(usage, "cache_creation_input_tokens")
    return Tokens(read, f.count(usage, "output_tokens"), f.count(usage, "cache_read_input_tokens"))


def _retry(state: StreamState, event: f.Object) -> Update:
    status, attempt = f.count(event, "error_status") or None, f.count(event, "attempt")
    words, delay = f.text(event, "error"), f.amount(event, "retry_delay_ms")
    otherwise = kinds.NETWORK if status is None else kinds.OTHER
    own_pause = (delay or 0) <= OWN_PAUSE * 2 ** max(min(attempt, 20) - 1, 0)
    error = stream_error(
        f"{words} (try {attempt})",
        status,
        retry_after=int(delay or 0) or None,
        retrying=True,
        otherwise=otherwise,
    )
    when = "" if delay is None else f" in {delay / 1000:.0f} s"
    failure = ev.Failure(f"{words or 'the provider failed'}; retrying{when}")
    return Update(state.with_error(error._replace(own_pause=own_pause)), (failure,))


def _rate_limited(state: StreamState, info: f.Object) -> Update:
    if info.get("status") != "rejected":
        return Update(state)
    reset = f.count(info, "resetsAt")
    reset_at = reset * 1000 if 0 < reset < 10**11 else reset or None
    text = f"{f.text(info, 'rateLimitType') or 'usage'} limit reached"
    error = StreamError(kinds.QUOTA, text, None, reset_at)
    return Update(state.with_error(error), (ev.Failure("the account has reached a limit"),))


def _failed_answer(state: StreamState, event: f.Object) -> Update:
    text = " ".join(f.text(part, "text") for part in f.items(event.get("message"), "content"))
    error = stream_error(text, f.count(event, "api_error_status") or None)
    return Update(state.with_error(error), tuple(content_events(event)))


def _ended(state: StreamState, event: f.Object) -> Update:
    failed = event.get("is_error") is True
    state = _with_figures(state._replace(ended=True, ok=not failed), event)
    denied = tuple(
        storable(f.text(denial, "tool_name"), MAX_ACTIVITY_LENGTH)
        for denial in f.items(event, "permission_denials")[:MAX_DENIED]
    )
    state = state._replace(denied=denied or state.denied)
    if isinstance(event.get("structured_output"), dict):
        state = state._replace(result=event["structured_output"])
    if failed:
        state = _failed_run(state, event)
    else:
        state = state.with_session(f.text(event, "session_id"))
        state = state._replace(error=None).with_message(f.text(event, "result"))
    return Update(state, end_events(event))


def end_events(event: f.Object) -> tuple[ev.Event, ...]:
    usage = f.member(event, "usage")
    end = ev.End(
        f.count(usage, "input_tokens") + f.count(usage, "output_tokens"),
        f.count(event, "num_turns") if "num_turns" in event else None,
        f.amount(event, "total_cost_usd"),
    )
    if not event.get("is_error"):
        return (end,)
    reason = event.get("result") or event.get("error") or f.text(event, "subtype").replace("_", " ")
    return ev.Failure(reason), end


def _failed_run(state: StreamState, event: f.Object) -> StreamState:
    errors = event.get("errors")
    texts = [text for text in errors if isinstance(text, str)] if isinstance(errors, list) else []
    subtype = f.text(event, "subtype")
    text = f.text(event, "result") or " ".join(texts) or subtype
    error = stream_error(text, f.count(event, "api_error_status") or None)
    error = error._replace(kind=BY_SUBTYPE.get(subtype, error.kind))
    if error.kind != kinds.RESUME:  # the session it names then is the one that does not exist
        state = state.with_session(f.text(event, "session_id"))
    return state.with_error(error)


def _with_figures(state: StreamState, event: f.Object) -> StreamState:
    state = state._replace(turns=f.count(event, "num_turns") or state.turns)
    models = f.member(event, "model_usage_since_last_result")
    used = [f.member(models, name) for name in models]
    if used:
        written_to_cache = sum(f.count(model, "cacheCreationInputTokens") for model in used)
        tokens = Tokens(
            sum(f.count(model, "inputTokens") for model in used) + written_to_cache,
            sum(f.count(model, "outputTokens") for model in used),
            sum(f.count(model, "cacheReadInputTokens") for model in used),
        )
        cost = sum(f.amount(model, "costUSD") or 0.0 for model in used)
        return state._replace(tokens=tokens, cost=cost)
    usage, total = f.member(event, "usage"), f.amount(event, "total_cost_usd")
    return state._replace(
        tokens=tokens_of(usage) if usage else state.tokens,
        cost=None if total is None else max(total - state.cost_before, 0.0),
    )


parse = ev.json_lines(_parse_event, ev.text_errors({NO_SESSION: kinds.RESUME}))
