"""The answers of the tools, without empty fields: context is expensive."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar, cast

from typing_extensions import TypedDict

from hypervisor.queue.lease import Lease, SettledResult
from hypervisor.queue.task import Message, Task

Answer = TypeVar("Answer")
MAX_WORK_LENGTH = 200_000  # characters of the body of a claimed task
MAX_BODY_LENGTH = 20_000  # characters of any other field


class Claimed(TypedDict, total=False):
    token: str
    id: str
    title: str
    body: str
    type: str
    priority: str
    branch: str
    data: Any
    attempt: int


class Claim(TypedDict, total=False):
    tasks: list[Claimed]
    note: str


class Ended(TypedDict, total=False):
    task: str
    state: str
    repeated: bool


class Completed(Ended, Claim, total=False):
    """The completed task, with the next claim if requested."""


class NoteAnswer(TypedDict):
    task: str
    count: int


class HeartbeatAnswer(TypedDict):
    alive: list[str]
    lost: list[str]


def without_empty(**fields: Any) -> dict[str, Any]:
    """The fields that are not empty."""
    return {name: value for name, value in fields.items() if value not in (None, "", [], (), {})}


def filled(kind: Callable[..., Answer], **fields: Any) -> Answer:
    """An answer without empty fields; the SDK checks it against its schema."""
    return cast("Answer", without_empty(**fields))


def claimed(lease: Lease) -> Claimed:
    task = lease.task
    return filled(
        Claimed,
        token=lease.token,
        id=task.id,
        title=task.title,
        body=cut(task.body, MAX_WORK_LENGTH),
        type=task.type,
        priority=task.priority,
        branch=task.branch,
        data=task.data,
        attempt=task.attempts,
    )


def message_line(message: Message) -> str:
    """A message of a person, as an agent reads it."""
    if message.kind == "note":
        return f"A person sent a note about {message.task}: {message.text}"
    asked = f" (asked: {message.asked})" if message.asked else ""
    return f"A person answered {message.task}: {message.text}{asked}"


def ended(settled: SettledResult) -> Ended:
    return Ended(task=settled.task, state=settled.state, repeated=settled.repeated)


def cut(text: str, most: int = MAX_BODY_LENGTH) -> str:
    if len(text) <= most:
        return text
    return f"{text[:most]}… ({len(text) - most:,} more characters; for all: `hv show --json`)"


def bounded(value: Any, most: int = MAX_BODY_LENGTH) -> Any:
    """A JSON value, or the beginning of its text if it is long."""
    text = json.dumps(value, ensure_ascii=False)
    return value if len(text) <= most else cut(text, most)


def brief(task: Task, batch: str) -> dict[str, Any]:
    """A task in a list, with the name of its batch."""
    from hypervisor.queue.message import question_of

    return {
        "id": task.id,
        "title": task.title[:200],
        "state": task.state,
        "type": task.type,
        "priority": task.priority,
        "batch": batch,
        "branch": task.branch,
        "assignee": task.assignee,
        "reason": (task.reason or "")[:300],
        "question": question_of(task)[:300],
    }
