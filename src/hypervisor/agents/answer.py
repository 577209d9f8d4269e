"""Answering a blocked task, and sending a note to the agent of one that runs."""

from __future__ import annotations

from hypervisor.core import validate
from hypervisor.queue.context import Context
from hypervisor.queue.message import MAX_MESSAGE_LENGTH
from hypervisor.queue.sql import messages
from hypervisor.queue.steer import Moved


def answer(hv: Context, task: str, text: str, now: int | None = None) -> Moved:
    """Answer a blocked task; its agent continues its session, and the answer is in the prompt."""
    task_id = hv.resolve(task)
    validate.text("the answer", text, MAX_MESSAGE_LENGTH, empty=False)
    state = hv.store.write(messages.answer, task_id, text, hv.actor, hv.at(now))
    hv.tasks_changed([task_id])
    return Moved(task_id, state)


def tell(hv: Context, task: str, text: str, now: int | None = None) -> Moved:
    """Send a note to the agent of a task: with its next tool call, or in its next attempt."""
    task_id = hv.resolve(task)
    validate.text("the note", text, MAX_MESSAGE_LENGTH, empty=False)
    return Moved(task_id, hv.store.write(messages.tell, task_id, text, hv.actor, hv.at(now)))
