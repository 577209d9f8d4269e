"""The stream of codex (`exec --json`). It tells no money, its tokens are those of the whole
session, those read from the cache among them. An item of type `error` is a warning; an `error`
that begins with "Reconnecting" is overcome if the next answer comes."""

from __future__ import annotations

from hypervisor.domain.agents import heard as kinds
from hypervisor.domain.agents.heard import Heard, Tokens, Trouble
from hypervisor.domain.agents.streams import reading as r

RETRYING = "Reconnecting..."
WORK = ("command_execution", "mcp_tool_call", "file_change", "web_search")
REFUSED = "requires approval"  # "MCP tool call requires approval, but approval policy is never"
# Its own words on stderr.
NO_SERVER = "required MCP servers failed to initialize"
NO_SESSION = "no rollout found"
FATAL = "Error: "


def hear(heard: Heard, line: str) -> Heard:
    event = r.object_in(line)
    if event is None:
        return _plain(heard, line)
    kind = r.text(event, "type")
    if kind == "thread.started":
        return r.with_session(heard, r.text(event, "thread_id"))
    if kind == "turn.started":
        return heard._replace(turns=heard.turns + 1, ended=False, ok=None)
    if kind == "turn.completed":
        tokens = r.since(_tokens(r.member(event, "usage")), heard.before)
        return heard._replace(tokens=tokens, trouble=None, ended=True, ok=True)
    if kind == "turn.failed":
        heard = heard._replace(ended=True, ok=False)
        return _failed(heard, r.text(r.member(event, "error"), "message"))
    if kind == "error":
        return _failed(heard, r.text(event, "message"))
    if kind in ("item.started", "item.updated", "item.completed"):
        return _item(heard, r.member(event, "item"), kind == "item.completed")
    return heard


def _tokens(usage: r.Object) -> Tokens:
    cached = r.count(usage, "cached_input_tokens")
    read = max(r.count(usage, "input_tokens") - cached, 0)
    return Tokens(read, r.count(usage, "output_tokens"), cached)


def _failed(heard: Heard, words: str) -> Heard:
    return r.with_trouble(heard, r.trouble(words, retrying=words.startswith(RETRYING)))


def _item(heard: Heard, item: r.Object, over: bool) -> Heard:
    kind = r.text(item, "type")
    if kind == "error":
        return heard
    heard = heard._replace(trouble=None)
    if kind == "agent_message":
        return r.with_said(heard, r.text(item, "text"))
    if kind not in WORK:
        return heard
    if over:
        return _worked(heard, item)
    what = r.text(item, "command") or r.text(item, "tool") or r.text(item, "query")
    return r.doing(heard, f"{kind} {what}")


def _worked(heard: Heard, item: r.Object) -> Heard:
    if item.get("server") == "hypervisor" and item.get("status") == "completed":
        heard = heard._replace(mcp="ready")
    words = r.text(r.member(item, "error"), "message")
    if item.get("status") == "declined" or REFUSED in words:
        return r.with_denied(heard, r.text(item, "tool") or r.text(item, "type"))
    return heard._replace(tools=heard.tools + 1)


def _plain(heard: Heard, line: str) -> Heard:
    if NO_SERVER in line:
        return heard._replace(mcp="dead", now=r.one_line(line))
    if not line.startswith(FATAL):
        return heard
    found = r.trouble(line.strip())
    if NO_SESSION in line:
        return r.with_trouble(heard, Trouble(kinds.RESUME, found.text))
    if heard.session or heard.mcp == "dead":
        return heard
    return r.with_trouble(heard, found)
