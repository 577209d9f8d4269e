"""The items of a chunk: every one, a page at a time, with what a correction refers to."""

from __future__ import annotations

from collections.abc import Iterator

from hypervisor.batches.sql import chunks as chunks_sql
from hypervisor.core import validate
from hypervisor.core.errors import NotFound
from hypervisor.core.records import NamedTuple
from hypervisor.queue.context import Context
from hypervisor.queue.lifecycle import state_called
from hypervisor.queue.result import category_of, items_in
from hypervisor.queue.sql import queries
from hypervisor.queue.task import Json, Task

PAGE = 500  # tasks read at a time
MAX_SCANNED = 20_000  # tasks of other categories that one call passes over
MAX_ITEMS = 1_000


class ReviewItem(NamedTuple):
    """A task of a chunk. A task for many items has all their categories. `digest` changes with
    its state, attempt and result; `amend` refuses an old one."""

    task: str
    title: str
    state: str
    reason: str | None
    attempts: int
    categories: tuple[str, ...]
    corrected: bool
    digest: str
    result: Json


class ItemPage(NamedTuple):
    """`next`: the `after` of the next page, "" if this is the last."""

    batch: str
    chunk: int
    items: tuple[ReviewItem, ...]
    next: str


def review_items(
    hv: Context,
    batch: str,
    chunk: int,
    *,
    category: str = "",
    state: str = "",
    task: str = "",
    after: str = "",
    limit: int = 50,
) -> ItemPage:
    """List the items of a chunk with their results: all, or those of a category or state."""
    validate.number("the limit", limit, 1, MAX_ITEMS)
    reviewed = hv.store.read(queries.batch, validate.text("the batch", batch))
    hv.store.read(chunks_sql.find, reviewed.id, chunk)
    after = validate.text("after", after, 100)
    if task:
        return _one(hv, reviewed.id, reviewed.name, chunk, hv.resolve(task))
    wanted_state = state_called(state) if state else ""
    items: list[ReviewItem] = []
    for scanned, found in enumerate(_tasks(hv, reviewed.id, chunk, after)):
        if len(items) == limit or scanned == MAX_SCANNED:
            return ItemPage(reviewed.name, chunk, tuple(items), after)
        after = found.id
        if wanted_state in ("", found.state):
            item = item_of(found)
            if not category or category in item.categories:
                items.append(item)
    return ItemPage(reviewed.name, chunk, tuple(items), "")


def item_of(task: Task) -> ReviewItem:
    results = list(items_in(task.result)) or [task.result] if task.state == "done" else []
    return ReviewItem(
        task.id,
        task.title,
        task.state,
        task.reason,
        task.attempts,
        tuple(dict.fromkeys(map(category_of, results))),
        chunks_sql.is_corrected(task),
        item_digest(task),
        task.result,
    )


def item_digest(task: Task) -> str:
    from hypervisor.batches.plans.action import digest

    return digest(task.state, task.attempts, task.result)


def _one(hv: Context, batch: str, name: str, chunk: int, task: str) -> ItemPage:
    found = hv.store.read(chunks_sql.one_of_chunk, batch, chunk, task)
    if found is None:
        raise NotFound(f"{task} is not in chunk {chunk}.")
    return ItemPage(name, chunk, (item_of(found),), "")


def _tasks(hv: Context, batch: str, chunk: int, after: str) -> Iterator[Task]:
    while page := hv.store.read(chunks_sql.page_of_chunk, batch, chunk, after, PAGE):
        yield from page
        after = page[-1].id
