"""The stream of qwen: as claude's, without money. The tokens of its result are those of the whole
session, an error of the provider comes as a message in brackets, and a run that used up its turns
ends without a result."""

from __future__ import annotations

from hypervisor.domain.agents import heard as kinds
from hypervisor.domain.agents.heard import Heard, Tokens, Trouble
from hypervisor.domain.agents.streams import claude
from hypervisor.domain.agents.streams import reading as r

FAILED = "[API Error:"
# Words of its own on stderr; anything else there may come from a tool.
PLAIN = (
    ("No saved session found", kinds.RESUME),
    ("max session turns", kinds.TURNS),
)


def hear(heard: Heard, line: str) -> Heard:
    event = r.object_in(line)
    if event is None:
        return _plain(heard, line)
    kind = r.text(event, "type")
    if kind == "system" and event.get("subtype") == "init":
        return claude.began(heard, event)
    if kind == "assistant":
        return _answered(heard, event)
    if kind == "user":
        return claude.worked(heard, event)
    return _ended(heard, event) if kind == "result" else heard


def _answered(heard: Heard, event: r.Object) -> Heard:
    words = "".join(r.text(each, "text") for each in r.items(event.get("message"), "content"))
    before, failed, _ = words.partition(FAILED)
    if not failed or not words.rstrip().endswith("]"):
        return claude.answered(heard, event, _tokens)
    found = r.trouble(words[len(before) :])
    if before and found.kind in (kinds.SERVER, kinds.OTHER):  # the answer had begun
        found = found._replace(kind=kinds.STREAM)
    return r.with_trouble(heard, found)


def _tokens(usage: r.Object) -> Tokens:
    """What came from the cache is part of what was read."""
    total = claude.tokens_of(usage)
    return total._replace(input=max(total.input - total.cached, 0))


def _ended(heard: Heard, event: r.Object) -> Heard:
    failed = event.get("is_error") is True
    total = _tokens(r.member(event, "usage"))
    heard = heard._replace(
        ended=True,
        ok=not failed,
        tokens=r.since(total, heard.before),
        turns=r.count(event, "num_turns") or heard.turns,
    )
    for each in r.items(event, "permission_denials"):
        heard = r.with_denied(heard, r.text(each, "tool_name"))
    if isinstance(event.get("structured_result"), dict):
        heard = heard._replace(result=event["structured_result"])
    heard = r.with_session(heard, r.text(event, "session_id"))
    if failed:
        words = r.text(r.member(event, "error"), "message") or r.text(event, "subtype")
        old, found = heard.trouble, r.trouble(words)
        if old is not None and old.kind == kinds.STREAM:
            found = found._replace(kind=kinds.STREAM)
        return r.with_trouble(heard, found)
    said = r.text(event, "result")
    return r.with_said(heard._replace(trouble=None), said)


def _plain(heard: Heard, line: str) -> Heard:
    if heard.trouble is None and not heard.ended:
        for words, kind in PLAIN:
            if words in line:
                return r.with_trouble(heard, Trouble(kind, r.storable(line.strip())))
    return heard
