"""What a task asks people, and what they write about it for its next attempt."""

from __future__ import annotations

from hypervisor.core.records import NamedTuple
from hypervisor.queue.lifecycle import BLOCKED, state_name
from hypervisor.queue.task import MessageKind, Task

MAX_MESSAGE_LENGTH = 20_000
NEEDS_INPUT = "needs input"  # for people: a blocked task that asks something


class NewMessage(NamedTuple):
    """A message that is being stored."""

    task: str
    kind: MessageKind
    text: str
    asked: str
    actor: str


def question_in(unblock: str | None, reason: str | None = None) -> str:
    """The question in what an attempt said when it blocked its task: a text that ends as one."""
    for text in (unblock, reason):
        if text and text.rstrip(" \t\n*_`'\")”").endswith(("?", "？", "؟")):
            return text.strip()
    return ""


def as_question(text: str) -> str:
    """A text that is meant as a question, in the form that is recognized as one."""
    text = text.strip()
    return text if not text or question_in(text) else f"{text.rstrip('.:! ')}?"


def unblock_text(next_step: str, question: str) -> str:
    """What would unblock a task, with the question that it asks, if any, at the end."""
    return " ".join(filter(None, (next_step.strip(), as_question(question))))


def question_of(task: Task) -> str:
    """What a task asks people; "" if it asks nothing."""
    return question_in(task.unblock, task.reason) if task.state == BLOCKED else ""


def shown_state(task: Task) -> str:
    """The name of a task's state for people."""
    return NEEDS_INPUT if question_of(task) else state_name(task.state)
