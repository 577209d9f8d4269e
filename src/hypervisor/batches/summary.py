"""The totals of a batch."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from hypervisor.batches.pipeline_names import batches_from
from hypervisor.batches.pipeline_status import has_succeeded
from hypervisor.batches.sql import chunks as chunks_sql
from hypervisor.batches.sql import last_run
from hypervisor.batches.sql import summary as summary_sql
from hypervisor.core import validate
from hypervisor.core.records import NamedTuple
from hypervisor.queue import lifecycle
from hypervisor.queue.agent_session import Spent
from hypervisor.queue.context import Context
from hypervisor.queue.result import NO_CATEGORY, category_of, items_in
from hypervisor.queue.sql import agent_sessions, queries
from hypervisor.queue.task import Batch
from hypervisor.runs.results import PAGE, reports
from hypervisor.runs.spec import TaskReport

if TYPE_CHECKING:
    from hypervisor.batches.chunk import Chunk


MAX_COUNTED = 5_000  # results whose categories are counted while a batch runs
MAX_CATEGORIES = 40


class Summary(NamedTuple):
    """The totals of a batch."""

    batch: str
    id: str
    states: dict[str, int]
    total: int
    succeeded: bool
    runtime_seconds: float
    attempt_seconds: float
    cpu_seconds: float
    peak_bytes: int
    attempts: int
    tokens: int | None
    cost: float | None
    tasks: tuple[TaskReport, ...]
    categories: dict[str, int]
    chunks: tuple[Chunk, ...]
    skipped: int  # by the last run, because they were done
    estimated: bool = False  # the cost is, at least in part, from a table of prices
    unchanged: int = 0  # tasks done in clones without any change


def summary(hv: Context, batch: str, now: int | None = None, tasks: bool = True) -> Summary:
    """Sum up a batch: every task with its outcome, and the totals.

    Without `tasks`, only the totals. It has succeeded only if its later stages have, too."""
    stored = hv.store.read(queries.batch, validate.text("the batch", batch))
    sums = hv.store.read(summary_sql.totals, stored.id, hv.at(now))
    total, done = sum(sums.states.values()), sums.states.get(lifecycle.DONE, 0)
    spent = _spent(hv, stored)
    return Summary(
        stored.name,
        stored.id,
        sums.states,
        total,
        has_succeeded(hv, stored.id, sums.states),
        (sums.ended - sums.begun) / 1000,
        sums.milliseconds / 1000,
        sums.cpu_ms / 1000,
        sums.peak_kb * 1024,
        sums.attempts,
        None if spent is None else spent.tokens,
        None if spent is None or not spent.cost_micros else spent.cost_micros / 1e6,
        tuple(reports(hv, stored.id, now)) if tasks else (),
        _categories(hv, stored.id, done),
        tuple(hv.store.read(chunks_sql.every, stored.id)),
        hv.store.read(last_run.skipped, stored.id),
        bool(spent and spent.estimated),
        hv.store.read(summary_sql.unchanged, stored.id),
    )


def _spent(hv: Context, batch: Batch) -> Spent | None:
    """What agents have cost; None for a batch without agents."""
    if not isinstance(batch.spec, dict) or not batch.spec.get("agent"):
        return None
    return hv.store.read(agent_sessions.spent, batch.id)


def _categories(hv: Context, batch: str, done: int) -> dict[str, int]:
    """The number of done tasks per category; empty without categories."""
    counts, tasks = _counted(hv, batch)
    if set(counts) <= {NO_CATEGORY}:
        return {}
    counts[NO_CATEGORY] += max(done - tasks, 0)
    return {name: count for name, count in counts.most_common() if count}


class Categories(NamedTuple):
    """`counts`: the largest first; of the first results only, unless `is_complete`."""

    counts: dict[str, int]
    is_complete: bool


def categories(hv: Context, batch: str) -> Categories:
    """Count the results of a batch by category, quickly: of a large batch, only the first."""
    id = hv.store.read(queries.batch, validate.text("the batch", batch)).id
    counts, tasks = _counted(hv, id, MAX_COUNTED)
    if set(counts) <= {NO_CATEGORY}:
        return Categories({}, True)
    return Categories(dict(counts.most_common(MAX_CATEGORIES)), tasks < MAX_COUNTED)


def _counted(hv: Context, batch: str, most: int | None = None) -> tuple[Counter[str], int]:
    """Results by category, and how many tasks have them."""
    counts: Counter[str] = Counter()
    after, tasks = "", 0
    while most is None or tasks < most:
        page = hv.store.read(summary_sql.results, batch, after, PAGE)
        for _, result in page:
            counts.update(map(category_of, list(items_in(result)) or [result]))
        tasks += len(page)
        if not page:
            break
        after = page[-1][0]
    return counts, tasks


def whole_summary(hv: Context, batch: str, now: int | None = None, tasks: bool = True) -> Summary:
    """Sum up a batch together with its later stages, like `status`."""
    first = summary(hv, batch, now, tasks)
    batches = batches_from(hv, first.id)
    if len(batches) == 1:
        return first
    parts = [first, *(summary(hv, part, now, tasks) for part in batches[1:])]
    totals = [hv.store.read(summary_sql.totals, part, hv.at(now)) for part in batches]
    ended = max(total.ended for total in totals)
    begun = min((total.begun for total in totals if total.begun), default=ended)
    return _combined(parts)._replace(runtime_seconds=(ended - begun) / 1000)


def _combined(parts: list[Summary]) -> Summary:
    states: Counter[str] = Counter()
    for part in parts:
        states.update(part.states)
    tokens = [part.tokens for part in parts if part.tokens is not None]
    costs = [part.cost for part in parts if part.cost is not None]
    return parts[0]._replace(
        states=dict(states),
        total=sum(part.total for part in parts),
        attempt_seconds=sum(part.attempt_seconds for part in parts),
        cpu_seconds=sum(part.cpu_seconds for part in parts),
        peak_bytes=max(part.peak_bytes for part in parts),
        attempts=sum(part.attempts for part in parts),
        tokens=sum(tokens) if tokens else None,
        cost=sum(costs) if costs else None,
        tasks=tuple(task for part in parts for task in part.tasks),
        estimated=any(part.estimated for part in parts),
        unchanged=sum(part.unchanged for part in parts),
    )
