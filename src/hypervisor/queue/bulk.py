"""Changing many tasks: one that is refused does not stop the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from hypervisor.core.errors import RequestError
from hypervisor.core.records import NamedTuple
from hypervisor.core.text import pluralize
from hypervisor.queue.context import Context
from hypervisor.queue.lifecycle import BLOCKED, FAILED, TRANSITIONS, state_name
from hypervisor.queue.queries import MAX_LISTED, list_tasks
from hypervisor.queue.steer import Moved

RETRIED = (FAILED, BLOCKED)  # unless other states are named
CANCELLED = tuple(state for state, event in TRANSITIONS if event == "cancel")


class Refused(NamedTuple):
    """A task that was not changed, and why."""

    task: str
    error: RequestError


def oldest_first(
    hv: Context, states: Sequence[str], batch: str | None = None, type: str | None = None
) -> list[str]:
    """The ids of the tasks in these states. Tasks mostly depend on older ones, so a dependency is
    changed before its dependents."""
    tasks = list_tasks(hv, states, batch, type=type, limit=MAX_LISTED)
    return [task.id for task in reversed(tasks)]


def change(
    hv: Context, tasks: Iterable[str], act: Callable[..., Moved], reason: str = ""
) -> Iterator[Moved | Refused]:
    """Change task after task. Errors of the store end it: they would meet every task."""
    for task in tasks:
        try:
            yield act(hv, task, reason)
        except RequestError as error:
            yield Refused(task, error)


def counted(moved: Sequence[Moved]) -> str:
    """In one line: the task and its state, or how many are in which."""
    if len(moved) == 1:
        return f"{moved[0].task} {state_name(moved[0].state)}"
    states = Counter(state_name(task.state) for task in moved)
    counts = ", ".join(f"{count:,} {state}" for state, count in states.items())
    return f"{pluralize(len(moved), 'task')}: {counts}"
