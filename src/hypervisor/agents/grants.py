"""Permissions that people give in answers, to agents that ask for each use of a tool. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hypervisor.agents.stream_state import StreamState
    from hypervisor.queue.agent_session import AgentSession
    from hypervisor.queue.task import Message

YES = ("yes", "y", "ok", "okay", "allow", "allowed")
MAX_ASKED = 5
NOW_ALLOWED = "A person allowed exactly this, for this task: {}"


def permission_question(state: StreamState) -> str:
    """Asks people for what was refused; "" if an answer could not allow it."""
    if not state.grantable or not state.denied:
        return ""
    actions = [f"`{action}`" for action in dict.fromkeys(state.denied)]
    more = f" and {len(actions) - MAX_ASKED} more" if len(actions) > MAX_ASKED else ""
    listed = ", ".join(actions[:MAX_ASKED]) + more
    return f"Answer yes to allow it, or say what to do instead: may it use {listed}?"


def is_yes(answer: str) -> bool:
    """Whether an answer begins with a word that allows."""
    words = re.findall(r"[^\W_]+", answer[:100].casefold())
    return bool(words) and words[0] in YES


def granted(messages: Iterable[Message], runs: Sequence[AgentSession]) -> tuple[str, ...]:
    """What people allowed: the actions that the run before an answer was refused."""
    allowed: list[str] = []
    for message in messages:
        if message.kind != "answer" or not is_yes(message.text):
            continue
        before = [run for run in runs if run.started_at <= message.at]
        last = max(before, key=lambda run: run.started_at, default=None)
        allowed += last.denied if last else ()
    return tuple(dict.fromkeys(allowed))
