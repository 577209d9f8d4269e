"""Reading tasks, batches and events. Nothing here changes anything."""

from collections.abc import Callable, Iterable, Sequence

from hypervisor.core import validate
from hypervisor.core.ids import clean
from hypervisor.core.records import NamedTuple
from hypervisor.queue import counts, lifecycle
from hypervisor.queue.agent_session import AgentSession
from hypervisor.queue.context import Context, batch_id
from hypervisor.queue.event import Event
from hypervisor.queue.lane import Priority, check_priority
from hypervisor.queue.receipt import Receipt
from hypervisor.queue.sql import agent_sessions, queries
from hypervisor.queue.sql import receipts as receipts_sql
from hypervisor.queue.task import Batch, Message, Stats, Task, TaskDetail, TaskFilter

MAX_LISTED = 100_000
EVENT_PAGE = 1_000


class TaskOverview(NamedTuple):
    """A task with its details, receipts, batch and agent sessions."""

    detail: TaskDetail
    receipts: tuple[Receipt, ...]
    batch: Batch | None
    sessions: tuple[AgentSession, ...] = ()  # oldest first
    messages: tuple[Message, ...] = ()  # of people, oldest first


def list_tasks(
    hv: Context,
    states: Sequence[str] = (),
    batch: str | None = None,
    *,
    type: str | None = None,
    branch: str | None = None,
    priority: Priority | None = None,
    assignee: str | None = None,
    text: str | None = None,
    limit: int = 50,
    before: str | None = None,
    archived: bool = False,
) -> tuple[Task, ...]:
    """List tasks, newest first, by state, batch, type, branch, priority, assignee or text.

    Tasks of archived batches are listed if `archived` is set or the batch is named."""
    validate.number("the limit", limit, 1, MAX_LISTED)
    for field, value in {
        "type": type,
        "branch": branch,
        "assignee": assignee,
        "text": text,
    }.items():
        if value is not None:
            validate.text(f"the {field}", value)
    wanted = TaskFilter(
        tuple(map(lifecycle.state_called, states)),
        batch_id(hv, batch),
        type,
        branch,
        None if priority is None else check_priority(priority),
        assignee,
        text,
        archived,
    )
    return tuple(
        hv.store.read(queries.list_tasks, wanted, limit, None if before is None else clean(before))
    )


def show(hv: Context, task: str) -> TaskOverview:
    """Show one task with its attempts, dependencies, keys and receipts."""
    from hypervisor.queue.sql import messages as messages_sql

    task_id = hv.resolve(task)
    detail = hv.store.read(queries.detail, task_id)
    receipts = tuple(hv.store.read(receipts_sql.of_task, task_id))
    sessions = tuple(reversed(hv.store.read(agent_sessions.sessions, task=task_id)))
    messages = tuple(hv.store.read(messages_sql.of_task, task_id))
    return TaskOverview(detail, receipts, _batch(hv, detail.task.batch), sessions, messages)


def stats(hv: Context, batch: str | None = None, now: int | None = None) -> Stats:
    """Count tasks by state and type, with the throughput of the last minutes."""
    counts.keep_short(hv)
    return hv.store.read(queries.stats, batch_id(hv, batch), hv.at(now))


def batches(hv: Context, limit: int = 100, archived: bool | None = False) -> tuple[Batch, ...]:
    """List batches, newest first; with `archived` only the archived ones, with None all."""
    validate.number("the limit", limit, 1, MAX_LISTED)
    return tuple(hv.store.read(queries.batches, limit, archived))


def events(hv: Context, since: int = 0, limit: int = 1_000) -> tuple[Event, ...]:
    """Read the event log: all changes in order, after a given number."""
    validate.number("since", since, 0, 2**62)
    validate.number("the limit", limit, 1, MAX_LISTED)
    return tuple(queries.events(hv.store, since, limit))


def last_events(
    hv: Context,
    count: int,
    wanted: Callable[[Event], bool] = lambda event: True,
    most: int | None = None,
) -> tuple[tuple[Event, ...], int]:
    """The last `count` wanted events, in order, and the number of the last event of all. Reads
    backwards, at most as many events as `most` says: there may be millions before them."""
    validate.number("the number of events", count, 1, MAX_LISTED)
    matching: list[Event] = []
    last = end = queries.end_of_log(hv.store)
    first = queries.events(hv.store, 0, 1)  # older ones may have been deleted
    oldest = max(first[0].seq - 1 if first else 0, 0 if most is None else last - most)
    while end > oldest and len(matching) < count:
        start = max(end - EVENT_PAGE, oldest)
        page = [event for event in events(hv, start, end - start) if event.seq <= end]
        matching = [*filter(wanted, page), *matching]
        end = start
    return tuple(matching[-count:]), last


def end_of_log(hv: Context) -> int:
    """The number of the last event."""
    return queries.end_of_log(hv.store)


def batch_names(hv: Context, ids: Iterable[str]) -> dict[str, str]:
    """The names of batches by their ids."""
    batch_ids = sorted(filter(None, set(ids)))
    return hv.store.read(queries.batch_names, batch_ids) if batch_ids else {}


def number_before(hv: Context, at: int) -> int:
    """The number of the last event before a time; 0 if there is none."""
    return queries.number_before(hv.store, at)


def _batch(hv: Context, batch_id: str) -> Batch | None:
    """None outside any batch, or if another batch has this one's id for its name."""
    batch = hv.store.read(queries.batch, batch_id) if batch_id else None
    return batch if batch and batch.id == batch_id else None
