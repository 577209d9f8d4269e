"""Tasks that did not succeed, grouped by their reason and the error message that they printed."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from hypervisor.core.records import NamedTuple
from hypervisor.core.text import one_line
from hypervisor.queue.context import Context
from hypervisor.queue.lifecycle import state_name
from hypervisor.queue.queries import list_tasks
from hypervisor.queue.sql import queries
from hypervisor.queue.task import Task
from hypervisor.runs.outputs.excerpt import EXCERPT_BYTES, Excerpt, excerpt

STATES = ("failed", "blocked", "review")
MAX_READ = 500
MAX_GROUPS = 20
TAIL_LINES = 5
MAX_MESSAGE_LENGTH = 300


class FailureGroup(NamedTuple):
    """Tasks that failed for the same reason and printed the same error message."""

    reason: str
    message: str  # with {} for the item; empty if it adds nothing to the reason
    tasks: Sequence[Task]
    tail: Sequence[str]  # the last lines that the first of them printed

    @property
    def text(self) -> str:
        message = self.message
        if len(self.tasks) == 1:
            message = message.replace("{}", one_line(self.tasks[0].title))
        return f"{self.reason}: {message}" if message else self.reason


class Failures(NamedTuple):
    groups: Sequence[FailureGroup]  # the largest first
    is_complete: bool  # False: only the newest failures were read, or there are more groups


def failures(hv: Context, batch: str) -> Failures:
    """Group the failed and blocked tasks of a batch, and those in review."""
    stored = hv.store.read(queries.batch, batch)
    is_agent = isinstance(stored.spec, dict) and stored.spec.get("agent")
    tasks = list_tasks(hv, STATES, batch, limit=MAX_READ + 1)
    groups = group_failures(hv, tasks[:MAX_READ], [stored.id] if is_agent else ())
    return Failures(groups[:MAX_GROUPS], len(tasks) <= MAX_READ and len(groups) <= MAX_GROUPS)


def group_failures(
    hv: Context, tasks: Iterable[Task], agents: Collection[str]
) -> list[FailureGroup]:
    """The largest group first, each in the order of its items. `agents`: batches whose outputs are
    transcripts, which add nothing to the reason."""
    groups: dict[tuple[str, str], list[Task]] = {}
    tails: dict[tuple[str, str], list[str]] = {}
    for task in sorted(tasks, key=lambda task: task.id):
        end = Excerpt((), "") if task.batch in agents else end_of_output(hv, task)
        reason = one_line(task.reason or state_name(task.state))
        message = _without_item(one_line(end.message), task.title)[:MAX_MESSAGE_LENGTH]
        key = reason, "" if message in reason else message
        groups.setdefault(key, []).append(task)
        tails.setdefault(key, [one_line(line) for line in end.lines])
    failures = [FailureGroup(*key, alike, tails[key]) for key, alike in groups.items()]
    return sorted(failures, key=lambda group: -len(group.tasks))


def end_of_output(hv: Context, task: Task) -> Excerpt:
    """What the last attempt printed in the end."""
    size = hv.outputs.size(task.id, task.attempts) or 0
    start = max(size - EXCERPT_BYTES, 0)
    end = hv.outputs.read(task.id, task.attempts, start, EXCERPT_BYTES)
    return excerpt(end, start > 0, TAIL_LINES)


def _without_item(line: str, item: str) -> str:
    """The line with {} for the item, so that lines about different items are the same."""
    if not item.strip():
        return line
    return re.sub(rf"(?<!\w){re.escape(one_line(item))}(?!\w)", "{}", line)
