"""Adding tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Unpack

from hypervisor.core import validate
from hypervisor.core.errors import HypervisorError, InvalidInput, StoreError, StoreUnavailable
from hypervisor.core.text import pluralize
from hypervisor.core.times import LATEST, time_ms
from hypervisor.queue.context import Context
from hypervisor.queue.lane import check_priority
from hypervisor.queue.sql import insert
from hypervisor.queue.task import Added, Duplicate, NewTask, TaskFields
from hypervisor.store.clock import MAX_DELAY
from hypervisor.store.database import Answer, Conflict

SLICE = 1_000  # takes about 50 ms, for which others wait
MAX_CHUNKS = 1_000_000
MAX_NEEDS = 10_000  # a last task may wait for all others of a large batch
_FIELDS_OF_SEVERAL = (
    "{} is a field of one task that is given by its title. Nothing was added; put it into each "
    "NewTask."
)


def add(
    hv: Context,
    tasks: str | NewTask | Iterable[str | NewTask],
    batch: str | None = None,
    now: int | None = None,
    *,
    retry_delay: int | None = None,
    **fields: Unpack[TaskFields],
) -> Added:
    """Add tasks; a task whose key already exists in the batch is reported and not added.

    A text is the title of a task; `fields` are those of a single task that is given by its title.
    `retry_delay` of the batch is the time before the first retry of a task, in milliseconds.
    """
    if fields:
        if not isinstance(tasks, str):
            raise InvalidInput(_FIELDS_OF_SEVERAL.format(next(iter(fields))))
        tasks = NewTask(tasks, **fields)
    all_tasks = [tasks] if isinstance(tasks, (str, NewTask)) else tasks
    checked = [checked_task(index, task) for index, task in enumerate(all_tasks, 1)]
    together = any(task.after for task in checked)
    return joined(
        add_in_slices(hv, checked, batch, now, retry_delay=retry_delay, together=together)
    )


def joined(parts: Iterable[Added]) -> Added:
    """The answers for all slices as one."""
    ids: list[str] = []
    duplicates: list[Duplicate] = []
    for part in parts:
        ids += part.ids
        duplicates += part.duplicates
    return Added(tuple(ids), tuple(duplicates))


def add_in_slices(
    hv: Context,
    tasks: Iterable[NewTask],
    batch: str | None,
    now: int | None = None,
    *,
    retry_delay: int | None = None,
    together: bool = False,
) -> Iterator[Added]:
    """Add checked tasks in slices, so that other writers do not have to wait.

    `together`: all in one transaction, which dependencies between them need."""
    if batch is not None:
        validate.label("the batch's name", batch)
    if retry_delay is not None:
        _check_retry_delay(batch, retry_delay)
    source, count = iter(tasks), 0
    while True:
        try:
            part = list(source if together else islice(source, SLICE))
            if not part:
                return
            added = insert_tasks(hv, part, batch, now, retry_delay=retry_delay)
        except (StoreError, InvalidInput) as error:
            if not count:
                raise
            raise _partly_added(error, count) from error
        count += len(part)
        yield added


def insert_tasks(
    hv: Context,
    tasks: Sequence[NewTask],
    batch: str | None,
    now: int | None = None,
    *,
    retry_delay: int | None = None,
) -> Added:
    """Add checked tasks to the batch of that name (None: to none), all or nothing."""
    return with_fresh_ids(
        lambda at: hv.store.write(insert.add, tasks, batch, hv.actor, at, retry_delay=retry_delay),
        hv.at(now),
    )


def _check_retry_delay(batch: str | None, delay: int) -> None:
    validate.number("the retry delay", delay, 0, MAX_DELAY)
    if batch is None:
        raise InvalidInput("a retry delay needs a batch. Nothing was added; name a batch.")


def with_fresh_ids(write: Callable[[int], Answer], now: int) -> Answer:
    """Write with the ids of this millisecond, or of a later one if another process has them."""
    for offset in range(20):
        with suppress(Conflict):
            return write(now + offset)
    raise StoreUnavailable("cannot find a free id. Nothing was added; try again.")


def _partly_added(error: StoreError | InvalidInput, added: int) -> HypervisorError:
    """The error of a later slice, with how much was added before."""
    message = str(error).replace("Nothing was changed", "The rest was not added")
    message = message.replace("Nothing was added", "The rest was not added")
    kind = InvalidInput if isinstance(error, InvalidInput) else type(error)
    return kind(
        f"{message} The first {pluralize(added, 'task')} were added. To add the rest, leave "
        f"these out, or give every task a key so that none is added twice."
    )


def check_task(task: NewTask) -> NewTask:
    """The task with every field checked and normalized."""
    if task.key is not None:
        validate.text("the key", task.key, validate.MAX_KEY_LENGTH, empty=False)
    start_at = task.start_at
    if start_at is not None:
        start_at = validate.number("the start time", time_ms(start_at), 0, LATEST)
    if not isinstance(task.inbox, bool):
        raise InvalidInput("inbox must be true or false.")
    return task._replace(
        title=validate.title(task.title),
        body=validate.text("the body", task.body),
        type=validate.name("the type", task.type),
        priority=check_priority(task.priority),
        branch=validate.name("the branch", task.branch, empty=True),
        assignee=validate.name("the assignee", task.assignee, empty=True),
        requires=validate.names("requires", task.requires),
        exclusive=validate.keys("exclusive keys", task.exclusive),
        after=validate.keys("after", task.after, MAX_NEEDS),
        start_at=start_at,
        retries=validate.number("retries", task.retries, 0, 1_000),
        data=validate.json_value("data", task.data),
        chunk=validate.number("the chunk", task.chunk, 0, MAX_CHUNKS),
    )


class SimilarTaskChecker:
    """Checks tasks that mostly differ in title, key, data and chunk only: other fields are not
    checked again if they equal those of the task before."""

    def __init__(self) -> None:
        self._given = self._checked = NewTask("")

    def check(self, task: NewTask) -> NewTask:
        """The task as `check_task` makes it."""
        given, checked = self._given, self._checked
        same = task[1:4] == given[1:4] and task[5:12] == given[5:12] and task.inbox == given.inbox
        if not (same and given.title):
            self._given, self._checked = task, check_task(task)
            return self._checked
        if task.key is not None:
            validate.text("the key", task.key, validate.MAX_KEY_LENGTH, empty=False)
        title, data = validate.title(task.title), validate.json_value("data", task.data)
        before_key, after_key = checked[1:4], checked[5:12]
        return NewTask._make(
            (title, *before_key, task.key, *after_key, data, checked.inbox, task.chunk)
        )


def checked_task(index: int, task: str | NewTask) -> NewTask:
    """The checked task; an error names its number."""
    try:
        return check_task(NewTask(task) if isinstance(task, str) else task)
    except InvalidInput as error:
        raise InvalidInput(f"task {index}: {error} Nothing was added.") from None
