"""What tools answer. Fields that have nothing to say are left out: context is expensive."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar, cast

from typing_extensions import TypedDict

from hypervisor.queue.lease import Lease, Settled
from hypervisor.queue.task import Task

Answer = TypeVar("Answer")
LONGEST_WORK = 200_000  # characters of what a worker has to do
LONGEST_BODY = 20_000  # characters that one field may bring into an agent's context


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
    tasks: list[Claimed]
    note: str


class Noted(TypedDict):
    task: str
    count: int


class Beaten(TypedDict):
    alive: list[str]
    lost: list[str]


def without_empty(**fields: Any) -> dict[str, Any]:
    """The fields that say something."""
    return {name: value for name, value in fields.items() if value not in (None, "", [], (), {})}


def filled(kind: Callable[..., Answer], **fields: Any) -> Answer:
    """An answer with the fields that say something; the SDK checks it against its schema."""
    return cast("Answer", without_empty(**fields))


def claimed(lease: Lease) -> Claimed:
    task = lease.task
    return filled(
        Claimed,
        token=lease.token,
        id=task.id,
        title=task.title,
        body=cut(task.body, LONGEST_WORK),
        type=task.type,
        priority=task.priority,
        branch=task.branch,
        data=task.data,
        attempt=task.attempts,
    )


def ended(settled: Settled) -> Ended:
    return Ended(task=settled.task, state=settled.state, repeated=settled.repeated)


def cut(text: str, most: int = LONGEST_BODY) -> str:
    if len(text) <= most:
        return text
    return f"{text[:most]}… ({len(text) - most:,} characters more: `hv show --json` has all)"


def bounded(value: Any, most: int = LONGEST_BODY) -> Any:
    """A JSON value, or the beginning of its text if it is long."""
    text = json.dumps(value, ensure_ascii=False)
    return value if len(text) <= most else cut(text, most)


def brief(task: Task) -> dict[str, Any]:
    """A task in a list."""
    return {
        "id": task.id,
        "title": task.title[:200],
        "state": task.state,
        "type": task.type,
        "priority": task.priority,
        "batch": task.batch,
        "branch": task.branch,
        "assignee": task.assignee,
        "reason": (task.reason or "")[:300],
    }
