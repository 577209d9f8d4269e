"""The stream of claude (`--output-format stream-json`), which cursor-agent speaks too.

`is_error` tells a failed run; `subtype` says "success" even then. Money and `modelUsage` are sums
over the whole session, `model_usage_since_last_result` is this run's. Tokens of a message that is
still being written are counted as they were when it began, so until the result they are a floor.
"""

from __future__ import annotations

from collections.abc import Callable

from hypervisor.domain.agents import heard as kinds
from hypervisor.domain.agents.heard import Heard, Tokens, Trouble
from hypervisor.domain.agents.streams import reading as r

SERVER = "hypervisor"
DEAD = ("failed", "disconnected", "error", "needs-auth")
HANDS_OVER = ("StructuredOutput", "structured_output")  # tools that only hand over a result
BY_SUBTYPE = {"error_max_turns": kinds.TURNS, "error_max_budget_usd": kinds.BUDGET}
NO_SESSION = "No conversation found with session ID"


def hear(heard: Heard, line: str) -> Heard:
    event = r.object_in(line)
    if event is None:
        return _plain(heard, line)
    kind, sub = r.text(event, "type"), r.text(event, "subtype")
    if kind == "system" and sub == "init":
        return began(heard, event)
    if kind == "system" and sub == "api_retry":
        return _retry(heard, event)
    if kind == "system" and sub == "permission_denied":
        return r.with_denied(heard, r.text(event, "tool_name"))
    if kind == "rate_limit_event":
        return _limit(heard, r.member(event, "rate_limit_info"))
    if kind == "assistant":
        failed = event.get("is_api_error_message") is True
        return _failed_answer(heard, event) if failed else answered(heard, event)
    if kind == "user":
        return worked(heard, event)
    return _ended(heard, event) if kind == "result" else heard


def began(heard: Heard, event: r.Object) -> Heard:
    heard = r.with_session(heard, r.text(event, "session_id"))
    for server in r.items(event, "mcp_servers"):
        if server.get("name") == SERVER:
            status = server.get("status")
            mcp = "ready" if status == "connected" else "dead" if status in DEAD else heard.mcp
            heard = heard._replace(mcp=mcp)
    return heard


def answered(
    heard: Heard, event: r.Object, count: Callable[[r.Object], Tokens] | None = None
) -> Heard:
    """The model spoke: whatever trouble there was is overcome. A message comes in several events,
    one for each part, all with the same id and the same tokens."""
    message = r.member(event, "message")
    id = r.text(message, "id")
    fresh = not id or id != heard.counted
    heard = heard._replace(trouble=None, ended=False, ok=None)
    if fresh:
        tokens = r.added(heard.tokens, (count or tokens_of)(r.member(message, "usage")))
        heard = heard._replace(tokens=tokens, turns=heard.turns + 1, counted=id)
    for part in r.items(message, "content"):
        if part.get("type") == "text":
            heard = r.with_said(heard, r.text(part, "text"))
        elif part.get("type") == "tool_use":
            heard = _called(heard, part)
    return heard


def _called(heard: Heard, part: r.Object) -> Heard:
    name, given = r.text(part, "name"), r.member(part, "input")
    if name in HANDS_OVER:
        # Its answer will be counted as work like any other; it is none.
        return heard._replace(result=given or None, tools=heard.tools - 1)
    what = r.text(given, "command") or r.text(given, "file_path") or r.text(given, "path")
    return r.doing(heard, f"{name} {what}")


def worked(heard: Heard, event: r.Object) -> Heard:
    """Answers of tools. One that failed was carried out, unless it was refused."""
    accepted = {
        r.text(each, "id")
        for each in r.items(event, "tool_result_meta")
        if r.member(each, "permission_decision").get("decision") == "accept"
    }
    count = 0
    for part in r.items(r.member(event, "message"), "content"):
        if part.get("type") == "tool_result":
            failed = part.get("is_error") is True
            count += not failed or r.text(part, "tool_use_id") in accepted
    return heard._replace(tools=heard.tools + count)


def tokens_of(usage: r.Object) -> Tokens:
    """What was written into the cache was read anew."""
    read = r.count(usage, "input_tokens") + r.count(usage, "cache_creation_input_tokens")
    return Tokens(read, r.count(usage, "output_tokens"), r.count(usage, "cache_read_input_tokens"))


def _retry(heard: Heard, event: r.Object) -> Heard:
    status = r.count(event, "error_status") or None
    words = f"{r.text(event, 'error')} (try {r.count(event, 'attempt')})"
    delay = r.count(event, "retry_delay_ms") or None
    otherwise = kinds.NETWORK if status is None else kinds.OTHER
    found = r.trouble(words, status, None, delay, True, otherwise)
    return r.with_trouble(heard, found)


def _limit(heard: Heard, info: r.Object) -> Heard:
    if info.get("status") != "rejected":
        return heard
    reset = r.count(info, "resetsAt")
    at = reset * 1000 if 0 < reset < 10**11 else reset or None
    words = f"{r.text(info, 'rateLimitType') or 'usage'} limit reached"
    return r.with_trouble(heard, Trouble(kinds.QUOTA, words, None, at))


def _failed_answer(heard: Heard, event: r.Object) -> Heard:
    words = " ".join(r.text(each, "text") for each in r.items(event.get("message"), "content"))
    status = r.count(event, "api_error_status") or None
    return r.with_trouble(heard, r.trouble(words, status))


def _ended(heard: Heard, event: r.Object) -> Heard:
    failed = event.get("is_error") is True
    heard = heard._replace(ended=True, ok=not failed)
    heard = _figures(heard, event)
    denied = tuple(
        r.storable(r.text(each, "tool_name"), r.LONGEST_NOW)
        for each in r.items(event, "permission_denials")[: r.MOST_DENIED]
    )
    heard = heard._replace(denied=denied or heard.denied)
    if isinstance(event.get("structured_output"), dict):
        heard = heard._replace(result=event["structured_output"])
    if failed:
        return _failed_run(heard, event)
    heard = r.with_session(heard, r.text(event, "session_id"))
    return r.with_said(heard._replace(trouble=None), r.text(event, "result"))


def _failed_run(heard: Heard, event: r.Object) -> Heard:
    errors = event.get("errors")
    told = [each for each in errors if isinstance(each, str)] if isinstance(errors, list) else []
    words = r.text(event, "result") or " ".join(told) or r.text(event, "subtype")
    kind = BY_SUBTYPE.get(r.text(event, "subtype"))
    found = r.trouble(words, r.count(event, "api_error_status") or None)
    if kind is not None:
        found = found._replace(kind=kind)
    if found.kind != kinds.RESUME:  # the session it names then is the one that is not there
        heard = r.with_session(heard, r.text(event, "session_id"))
    return r.with_trouble(heard, found)


def _figures(heard: Heard, event: r.Object) -> Heard:
    turns = r.count(event, "num_turns") or heard.turns
    models = r.member(event, "model_usage_since_last_result")
    each = [r.member(models, name) for name in models]
    if each:
        read = sum(r.count(m, "inputTokens") + r.count(m, "cacheCreationInputTokens") for m in each)
        tokens = Tokens(
            read, sum(r.count(m, "outputTokens") for m in each),
            sum(r.count(m, "cacheReadInputTokens") for m in each),
        )  # fmt: skip
        cost: float | None = sum(r.amount(m, "costUSD") or 0.0 for m in each)
    else:
        usage = r.member(event, "usage")
        tokens = tokens_of(usage) if usage else heard.tokens
        total = r.amount(event, "total_cost_usd")
        cost = None if total is None else max(total - heard.cost_before, 0.0)
    return heard._replace(turns=turns, tokens=tokens, cost=cost)


def _plain(heard: Heard, line: str) -> Heard:
    if NO_SESSION in line and heard.trouble is None:
        return r.with_trouble(heard, Trouble(kinds.RESUME, r.storable(line.strip())))
    return heard
