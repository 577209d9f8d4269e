"""Adding tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput, StoreError, StoreUnavailable
from hypervisor.queue.context import Context
from hypervisor.queue.priority import check_priority
from hypervisor.queue.sql import insert
from hypervisor.queue.task import Added, NewTask
from hypervisor.store.database import Answer, Conflict

SLICE = 10_000
MOST_CHUNKS = 1_000_000
MOST_NEEDS = 10_000  # a last task may wait for all others of a large batch
LATEST = 253_402_300_799_000  # the end of the year 9999


def add(
    hv: Context, tasks: Sequence[NewTask], batch: str | None = None, now: int | None = None
) -> Added:
    """Add tasks; a task whose key already exists in the batch is reported and not added."""
    checked = [checked_task(index, task) for index, task in enumerate(tasks, 1)]
    if batch is not None:
        validate.label("the batch's name", batch)
    # Links between the tasks of a call need one transaction. A long list without
    # links goes in slices, so that other writers are not kept waiting.
    size = len(checked) if any(task.after for task in checked) else SLICE
    added: list[Added] = []
    for start in range(0, len(checked), max(size, 1)):
        try:
            added.append(insert_tasks(hv, checked[start : start + size], batch, now))
        except StoreError as error:
            if not start:
                raise
            raise _in_part(error, start, len(checked)) from error
    return Added(
        tuple(task_id for part in added for task_id in part.ids),
        tuple(duplicate for part in added for duplicate in part.duplicates),
    )


def insert_tasks(
    hv: Context, tasks: Sequence[NewTask], batch: str | None, now: int | None = None
) -> Added:
    """Add checked tasks to the batch of that name (None: to none), all or nothing."""
    return with_fresh_ids(
        lambda at: hv.store.write(insert.add, tasks, batch, hv.actor, at), hv.at(now)
    )


def with_fresh_ids(write: Callable[[int], Answer], now: int) -> Answer:
    """Another process may draw the same ids in the same millisecond: then it is the next one."""
    for later in range(20):
        with suppress(Conflict):
            return write(now + later)
    raise StoreUnavailable("no free ids could be found; nothing was added. Try again.")


def _in_part(error: StoreError, done: int, of: int) -> StoreError:
    """An error of a later slice: those before it stay."""
    told = str(error).replace("Nothing was changed", "The rest was not added")
    return type(error)(
        f"{told} The first {done:,} of {of:,} tasks are in the store: to go on, leave them out, "
        "or give all of them a key, so that none is added twice."
    )


def check_task(task: NewTask) -> NewTask:
    """The task with every field checked and normalised."""
    if task.key is not None:
        validate.text("the key", task.key, validate.LONGEST_KEY, empty=False)
    if task.start_at is not None:
        validate.number("the start time", task.start_at, 0, LATEST)
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
        after=validate.keys("after", task.after, MOST_NEEDS),
        retries=validate.number("retries", task.retries, 0, 1_000),
        data=validate.json_value("data", task.data),
        chunk=validate.number("the chunk", task.chunk, 0, MOST_CHUNKS),
    )


class AlikeTasks:
    """Checks tasks of which most have all but title, key, data and chunk in common: what was the
    same in the one before is not looked at again."""

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
            validate.text("the key", task.key, validate.LONGEST_KEY, empty=False)
        title, data = validate.title(task.title), validate.json_value("data", task.data)
        alike, more = checked[1:4], checked[5:12]
        return NewTask._make((title, *alike, task.key, *more, data, checked.inbox, task.chunk))


def checked_task(index: int, task: NewTask) -> NewTask:
    """The task as it may be stored; else says which of many is wrong."""
    try:
        return check_task(task)
    except InvalidInput as error:
        raise InvalidInput(f"task {index}: {error} Nothing was added.") from None
