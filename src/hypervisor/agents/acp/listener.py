"""The client's side of ACP: prints what the agent does, and answers what it asks."""

from __future__ import annotations

import json
import sys
from typing import Any

from hypervisor.agents.acp.permissions import Grant, Wish, choose, is_allowed

MAX_SHOWN = 20_000
ENDED = ("completed", "failed")
USAGE = ("input_tokens", "output_tokens", "thought_tokens", "cached_read_tokens")
CAMEL = {"inputTokens": USAGE[0], "outputTokens": USAGE[1], "thoughtTokens": USAGE[2]}
CAMEL |= {"cachedReadTokens": USAGE[3], "cachedInputTokens": USAGE[3]}


def tell(**event: Any) -> None:
    """Print one line of the stream."""
    sys.stdout.write(json.dumps(event, ensure_ascii=False) + "\n")
    sys.stdout.flush()


class Listener:
    def __init__(self, grant: Grant) -> None:
        self._grant = grant
        self.is_replaying = False  # a loaded session repeats its history
        self._message = ""  # the id of the message that is being received
        self._calls: dict[str, dict[str, Any]] = {}  # tool calls that were not printed yet
        self._printed: set[str] = set()

    def on_connect(self, conn: Any) -> None:
        """Nothing has to be prepared."""

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        kind = update.session_update
        if self.is_replaying:
            return
        if kind == "agent_message_chunk":
            self._say(update)
        elif kind in ("tool_call", "tool_call_update"):
            self._follow(update)
        elif kind == "usage_update" and update.cost is not None:
            tell(type="cost", amount=update.cost.amount, currency=update.cost.currency)

    def _say(self, update: Any) -> None:
        text = getattr(update.content, "text", "") or ""
        message = getattr(update, "message_id", None) or ""
        if text and message != self._message:
            text = text if not self._message else f"\n{text}"
            self._message = message
        if text:
            tell(type="message", text=text)
        if usage := usage_in((update.field_meta or {}).get("usage")):
            tell(type="usage", usage=usage)

    def _follow(self, update: Any) -> None:
        """A call is printed once its input is known; some agents report only its end."""
        call = self._known(update)
        if call["input"] or update.status in ENDED:
            self._print(update.tool_call_id)
        if update.status in ENDED:
            failed, content = update.status == "failed", update.raw_output or update.content
            tell(type="tool_result", failed=failed, content=_shown(content))

    def _known(self, call: Any) -> dict[str, Any]:
        """What is known of a call. A title without the name of the server says less than before."""
        known = self._calls.setdefault(call.tool_call_id, {"title": "", "kind": "", "input": ""})
        title = "" if known["title"].endswith(call.title or "") else call.title
        given = {"title": title, "kind": call.kind, "input": _shown(call.raw_input or None)}
        known.update({name: value for name, value in given.items() if value})
        return known

    def _print(self, id: str) -> None:
        if id not in self._printed:
            self._printed.add(id)
            call = self._calls[id]
            tell(type="tool", name=call["title"], kind=call["kind"], input=call["input"])

    async def request_permission(
        self, session_id: str, tool_call: Any, options: Any, **_: Any
    ) -> Any:
        from acp.schema import AllowedOutcome, DeniedOutcome, RequestPermissionResponse

        known = self._known(tool_call)
        self._print(tool_call.tool_call_id)
        paths = tuple(place.path for place in tool_call.locations or ())
        wish = Wish(known["kind"], known["title"], paths, _command(tool_call.raw_input))
        allowed = is_allowed(wish, self._grant)
        if not allowed:
            tell(type="denied", name=wish.description)
        option = choose([(each.option_id, each.kind) for each in options], allowed)
        if not option:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(
            outcome=AllowedOutcome(outcome="selected", option_id=option)
        )


def usage_in(value: Any) -> dict[str, int]:
    """The counts in the extensions in which some agents report their usage."""
    if not isinstance(value, dict):
        return {}
    named = {CAMEL.get(name, name): count for name, count in value.items()}
    return {name: named[name] for name in USAGE if isinstance(named.get(name), int)}


def _command(given: Any) -> str:
    """The command that a tool is to run, if it is given as one."""
    command = given.get("command") if isinstance(given, dict) else None
    words = command if isinstance(command, list) else [command]
    return " ".join(word for word in words if isinstance(word, str))


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        value = [
            part.model_dump(exclude_none=True) for part in value if hasattr(part, "model_dump")
        ]
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text[:MAX_SHOWN]
