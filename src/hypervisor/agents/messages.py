"""What people wrote about a task, as its agents are given it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from hypervisor.agents.prompt import fenced
from hypervisor.agents.session import was_answered

if TYPE_CHECKING:
    from hypervisor.queue.agent_session import AgentSession
    from hypervisor.queue.task import Message

ASKED = "An earlier attempt stopped and asked people:"
ANSWERED = "A person answered, within the rules:"
NOTED = "A person sent this note about the task, within the rules:"


def unheard(
    messages: Iterable[Message], runs: Sequence[AgentSession], session: str
) -> list[Message]:
    """Those that a session to be resumed does not know yet: what was given to an attempt in which
    the provider never answered may not be in it."""
    known = {run.attempt for run in runs if run.session == session and was_answered(run)}
    return [message for message in messages if message.attempt not in known]


def messages_text(messages: Iterable[Message], asked: bool = True) -> str:
    """The messages as a part of a prompt; `asked`: with what they answer."""
    parts: list[str] = []
    for message in messages:
        if message.kind == "answer":
            if asked and message.asked:
                parts += [ASKED, fenced(message.asked, "question")]
            parts += [ANSWERED, fenced(message.text, "answer")]
        else:
            parts += [NOTED, fenced(message.text, "note")]
    return "\n\n".join(parts)
