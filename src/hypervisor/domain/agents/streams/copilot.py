"""The stream of copilot (`--output-format json`). It names its session at the very end, and its
tokens only in a file (`--usage-output-file`). After SIGTERM it closes its stream as if all were
well, but for an `abort` before."""

from __future__ import annotations

from hypervisor.domain.agents import heard as kinds
from hypervisor.domain.agents.heard import Heard, Tokens, Trouble
from hypervisor.domain.agents.streams import reading as r

SERVER = "hypervisor"
ABORTED = "aborted"
NO_SESSION = "No session, task, or name matched"


def hear(heard: Heard, line: str) -> Heard:
    event = r.object_in(line)
    if event is None:
        return _plain(heard, line)
    kind, data = r.text(event, "type"), r.member(event, "data")
    if kind == "session.mcp_server_status_changed" and data.get("serverName") == SERVER:
        mcp = {"connected": "ready", "failed": "dead"}.get(r.text(data, "status"), heard.mcp)
        return heard._replace(mcp=mcp)
    if kind == "assistant.message":
        heard = heard._replace(trouble=None, turns=heard.turns + 1)
        return r.with_said(heard, r.text(data, "content"))
    if kind == "tool.execution_start":
        what = r.text(r.member(data, "arguments"), "command")
        return r.doing(heard, f"{r.text(data, 'toolName')} {what}")
    if kind == "tool.execution_complete":
        return _worked(heard, data)
    if kind == "model.call_failure":
        return _failed(heard, data, "errorMessage", True)
    if kind == "session.error":
        return _failed(heard, data, "message", False)
    if kind == "abort":
        return heard._replace(counted=ABORTED)
    return _ended(heard, event) if kind == "result" else heard


def with_usage(heard: Heard, usage: str) -> Heard:
    """What the file of usage tells, once the program has ended."""
    models = r.member(r.object_in(usage.replace("\n", " ")), "modelMetrics")
    if not models:
        return heard
    each = [r.member(models, name, "usage") for name in models]
    cached = sum(r.count(one, "cacheReadTokens") for one in each)
    read = sum(r.count(one, "inputTokens") for one in each)
    written = sum(r.count(one, "outputTokens") for one in each)
    total = Tokens(max(read - cached, 0), written, cached)  # of the whole session
    return heard._replace(tokens=r.since(total, heard.before))


def _worked(heard: Heard, data: r.Object) -> Heard:
    if data.get("success") is not True and r.member(data, "error").get("code") == "denied":
        return r.with_denied(heard, heard.now.partition(" ")[0])
    return heard._replace(tools=heard.tools + 1)


def _failed(heard: Heard, data: r.Object, words: str, retrying: bool) -> Heard:
    status = r.count(data, "statusCode") or None
    found = r.trouble(r.text(data, words), status, retrying=retrying)
    if status is None and found.kind == kinds.SERVER:  # inside an answer that had begun with 200
        found = found._replace(kind=kinds.STREAM)
    return r.with_trouble(heard, found)


def _ended(heard: Heard, event: r.Object) -> Heard:
    heard = r.with_session(heard, r.text(event, "sessionId"))
    if heard.counted == ABORTED:
        return heard
    return heard._replace(ended=True, ok=event.get("exitCode") == 0)


def _plain(heard: Heard, line: str) -> Heard:
    if NO_SESSION in line and heard.trouble is None:
        return r.with_trouble(heard, Trouble(kinds.RESUME, r.storable(line.strip())))
    return heard
