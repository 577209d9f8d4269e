"""The stream of opencode (`run --format json`). Each step tells its own tokens and cost; the cost
is 0 where it does not know the model's price. The last step's reason is not "tool-calls". Of what
it tries again it says nothing, but for a step that begins twice."""

from __future__ import annotations

import re

from hypervisor.domain.agents import heard as kinds
from hypervisor.domain.agents.heard import Heard, Tokens, Trouble
from hypervisor.domain.agents.streams import reading as r

OPEN = "a step"  # that has begun and not ended
NO_SESSION = re.compile(r"^(?:\x1b\[[0-9;]*m)*Error: (?:\x1b\[[0-9;]*m)*Session not found")
GOES_ON = ("tool-calls", "unknown")
REFUSED = ("rejected permission to use", "a rule which prevents you from using")


def hear(heard: Heard, line: str) -> Heard:
    event = r.object_in(line)
    if event is None:
        return _plain(heard, line)
    heard = r.with_session(heard, r.text(event, "sessionID"))
    kind, part = r.text(event, "type"), r.member(event, "part")
    if kind == "step_start":
        return _began(heard)
    if kind == "text":
        return r.with_said(heard._replace(trouble=None), r.text(part, "text"))
    if kind == "tool_use":
        return _worked(heard._replace(trouble=None), part)
    if kind == "step_finish":
        return _stepped(heard, part)
    if kind == "error":
        error = r.member(event, "error")
        data = r.member(error, "data")
        words = r.text(data, "message") or r.text(error, "name")
        after = _seconds(r.text(r.member(data, "responseHeaders"), "retry-after"))
        found = r.trouble(words, r.count(data, "statusCode") or None, retry_after=after)
        return r.with_trouble(heard._replace(ended=True, ok=False), found)
    return heard


def _began(heard: Heard) -> Heard:
    heard = heard._replace(ended=False, ok=None)
    if heard.counted != OPEN:
        return heard._replace(counted=OPEN)
    return r.with_trouble(heard, Trouble(kinds.STREAM, "the answer broke off", retrying=True))


def _plain(heard: Heard, line: str) -> Heard:
    if NO_SESSION.match(line):
        return r.with_trouble(heard, Trouble(kinds.RESUME, "Session not found"))
    return heard


def _worked(heard: Heard, part: r.Object) -> Heard:
    name, state = r.text(part, "tool"), r.member(part, "state")
    words = r.text(state, "error")
    if state.get("status") == "error" and any(each in words for each in REFUSED):
        return r.with_denied(heard, name)
    heard = r.doing(heard, f"{name} {r.text(state, 'title')}")
    if name.startswith("hypervisor_"):
        heard = heard._replace(mcp="ready")
    return heard._replace(tools=heard.tools + 1)


def _stepped(heard: Heard, part: r.Object) -> Heard:
    tokens, cache = r.member(part, "tokens"), r.member(part, "tokens", "cache")
    step = Tokens(
        r.count(tokens, "input") + r.count(cache, "write"),
        r.count(tokens, "output") + r.count(tokens, "reasoning"),
        r.count(cache, "read"),
    )
    cost = (heard.cost or 0.0) + (r.amount(part, "cost") or 0.0)
    heard = heard._replace(
        tokens=r.added(heard.tokens, step),
        cost=cost or None,
        turns=heard.turns + 1,
        trouble=None,
        counted="",
    )
    reason = r.text(part, "reason")
    if reason in GOES_ON:
        return heard
    return heard._replace(ended=True, ok=reason == "stop")


def _seconds(header: str) -> int | None:
    """A Retry-After in milliseconds; a date is not worth the trouble."""
    return (
        int(header) * 1000 if header.isascii() and header.isdecimal() and len(header) < 9 else None
    )
