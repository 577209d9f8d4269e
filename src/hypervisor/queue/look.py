"""Looking: nothing here changes anything."""

from collections.abc import Sequence
from typing import NamedTuple

from hypervisor.agents.session import AgentSession
from hypervisor.agents.sql import sessions as sessions_sql
from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput
from hypervisor.core.ids import clean
from hypervisor.queue import lifecycle
from hypervisor.queue.context import Context, batch_id
from hypervisor.queue.event import Event
from hypervisor.queue.priority import check_priority
from hypervisor.queue.receipt import Receipt
from hypervisor.queue.sql import queries
from hypervisor.queue.sql import receipts as receipts_sql
from hypervisor.queue.task import Batch, Stats, Task, TaskDetail, TaskFilter

MOST_LISTED = 100_000


class Shown(NamedTuple):
    """A task, all that hangs on it, its receipts, its batch and the runs of agents for it."""

    detail: TaskDetail
    receipts: tuple[Receipt, ...]
    batch: Batch | None
    sessions: tuple[AgentSession, ...] = ()  # runs of agents, the first one first


def list_tasks(
    hv: Context,
    states: Sequence[str] = (),
    batch: str | None = None,
    type: str | None = None,
    branch: str | None = None,
    priority: str | None = None,
    assignee: str | None = None,
    text: str | None = None,
    limit: int = 50,
    before: str | None = None,
) -> tuple[Task, ...]:
    """List tasks, newest first, by state, batch, type, branch, priority, assignee or text."""
    for state in states:
        if state not in lifecycle.STATES:
            raise InvalidInput(
                f"unknown state {state!r}: use one of {', '.join(lifecycle.STATES)}."
            )
    validate.number("the limit", limit, 1, MOST_LISTED)
    for what, value in {"type": type, "branch": branch, "assignee": assignee, "text": text}.items():
        if value is not None:
            validate.text(f"the {what}", value)
    wanted = TaskFilter(
        tuple(states),
        batch_id(hv, batch),
        type,
        branch,
        None if priority is None else check_priority(priority),
        assignee,
        text,
    )
    return tuple(
        hv.store.read(queries.list_tasks, wanted, limit, None if before is None else clean(before))
    )


def show(hv: Context, task: str) -> Shown:
    """Show one task with its attempts, dependencies, keys and receipts."""
    found = hv.resolve(task)
    detail = hv.store.read(queries.detail, found)
    receipts = tuple(hv.store.read(receipts_sql.of_task, found))
    sessions = tuple(reversed(hv.store.read(sessions_sql.sessions, task=found)))
    return Shown(detail, receipts, _batch(hv, detail.task.batch), sessions)


def stats(hv: Context, batch: str | None = None, now: int | None = None) -> Stats:
    """Count tasks by state and type, with the pace of the last minutes."""
    return hv.store.read(queries.stats, batch_id(hv, batch), hv.at(now))


def batches(hv: Context, limit: int = 100) -> tuple[Batch, ...]:
    """List batches, newest first."""
    validate.number("the limit", limit, 1, MOST_LISTED)
    return tuple(hv.store.read(queries.batches, limit))


def events(hv: Context, since: int = 0, limit: int = 1_000) -> tuple[Event, ...]:
    """Read the event log from a number on: everything that changed, in order, none missed."""
    validate.number("since", since, 0, 2**62)
    validate.number("the limit", limit, 1, MOST_LISTED)
    return tuple(queries.events(hv.store, since, limit))


def _batch(hv: Context, batch_id: str) -> Batch | None:
    """None outside any batch, or if another batch has this one's id for its name."""
    batch = hv.store.read(queries.batch, batch_id) if batch_id else None
    return batch if batch and batch.id == batch_id else None
