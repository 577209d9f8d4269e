"""Answering a blocked task: its agent continues with the answer."""

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
