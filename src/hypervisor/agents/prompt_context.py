"""What a prompt tells of the past: results that a task builds on, what other agents of its branch
found, and how it went before."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hypervisor.hive.memory import relevant
from hypervisor.queue.lifecycle import DONE
from hypervisor.queue.result import text_of
from hypervisor.queue.sql import queries

if TYPE_CHECKING:
    from hypervisor.queue.task import Json, Task
    from hypervisor.store.database import Database

MOST_RESULTS = 20
LONGEST_RESULT = 4_000


def context_of(store: Database, task: Task) -> str:
    """In words for the agent; all of it is data."""
    detail = store.read(queries.detail, task.id)
    lines = []
    for name in detail.after[:MOST_RESULTS]:
        before = store.read(queries.task, name)
        if before.state == DONE and before.result is not None:
            lines.append(f"Result of {before.title} ({before.id}):\n{_shown(before.result)}")
    if found := relevant(store, task):
        lines.append(found)
    ended = [each for each in detail.attempts if each.outcome == "failed" and each.reason]
    if ended:
        lines.append(f"An earlier attempt at this task failed: {ended[-1].reason}")
    return "\n\n".join(lines)


def _shown(result: Json) -> str:
    text = text_of(result, "summary") or json.dumps(result, ensure_ascii=False)
    return text if len(text) <= LONGEST_RESULT else text[: LONGEST_RESULT - 1] + "…"
