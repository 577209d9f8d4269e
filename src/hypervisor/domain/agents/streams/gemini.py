"""The stream of gemini (`-o stream-json`). Messages come in pieces. It tries again after a limit
without a word in the stream, but says so on stderr; an error inside an answer ends it with exit
code 0. Tools that it may not use are not offered to the model, so none is ever refused."""

from __future__ import annotations

import re

from hypervisor.domain.agents import heard as kinds
from hypervisor.domain.agents.heard import Heard, Tokens, Trouble
from hypervisor.domain.agents.streams import reading as r

SPEAKING = "speaking"  # the last event was a piece of a message
FATAL = {"FatalTurnLimitedError": kinds.TURNS, "FatalAuthenticationError": kinds.AUTH}
# Its own words on stderr.
RETRYING = re.compile(r"^Attempt \d+ failed(?: with status (\d{3})\. Retrying)?")
DELAY = re.compile(r"^\s*retryDelayMs: (\d{1,12})\b")
NO_SERVER = "MCP issues detected"
NO_SESSION = "Error resuming session"


def hear(heard: Heard, line: str) -> Heard:
    event = r.object_in(line)
    if event is None:
        return _plain(heard, line)
    kind = r.text(event, "type")
    if kind == "message":
        return _said(heard, event) if event.get("role") == "assistant" else heard
    heard = heard._replace(counted="")
    if kind == "init":
        return r.with_session(heard, r.text(event, "session_id"))
    if kind == "tool_use":
        what = r.text(r.member(event, "parameters"), "command")
        heard = heard._replace(trouble=None, turns=heard.turns + 1)
        return r.doing(heard, f"{r.text(event, 'tool_name')} {what}")
    if kind == "tool_result":
        return heard._replace(tools=heard.tools + 1)
    if kind == "error" and event.get("severity") != "warning":
        found = r.trouble(r.text(event, "message"), otherwise=kinds.STREAM)
        return r.with_trouble(heard, found)
    return _ended(heard, event) if kind == "result" else heard


def _said(heard: Heard, event: r.Object) -> Heard:
    piece = r.text(event, "content")
    goes_on = heard.counted == SPEAKING and event.get("delta") is True
    whole = f"{heard.said}{piece}" if goes_on else piece
    turns = heard.turns if goes_on else heard.turns + 1
    return r.with_said(heard._replace(trouble=None, counted=SPEAKING, turns=turns), whole)


def _ended(heard: Heard, event: r.Object) -> Heard:
    ok = event.get("status") == "success"
    stats = r.member(event, "stats")
    cached = r.count(stats, "cached")
    tokens = Tokens(
        max(r.count(stats, "input_tokens") - cached, 0), r.count(stats, "output_tokens"), cached
    )
    heard = heard._replace(ended=True, ok=ok, tokens=tokens)
    if ok:
        return heard  # trouble that nothing followed is still there: "success" proves nothing
    error = r.member(event, "error")
    words = r.text(error, "message")
    if not words and heard.trouble is not None:
        return heard
    found = r.trouble(words or "it ended with an error", otherwise=kinds.STREAM)
    kind = FATAL.get(r.text(error, "type"))
    return r.with_trouble(heard, found._replace(kind=kind) if kind else found)


def _plain(heard: Heard, line: str) -> Heard:
    if NO_SERVER in line:
        return heard._replace(mcp="dead")
    if heard.ended:
        return heard
    if line.startswith(NO_SESSION):
        return r.with_trouble(heard, Trouble(kinds.RESUME, r.storable(line.strip())))
    found = RETRYING.match(line)
    if found is None:
        return _delayed(heard, line)
    told = r.trouble(line.strip(), int(found[1]) if found[1] else None, retrying=bool(found[1]))
    return r.with_trouble(heard, told)


def _delayed(heard: Heard, line: str) -> Heard:
    """The provider's word on when to come back, in the print-out of an error."""
    found = DELAY.match(line)
    if found is None or heard.trouble is None or heard.trouble.kind != kinds.QUOTA:
        return heard
    return heard._replace(trouble=heard.trouble._replace(retry_after=int(found[1])))
