"""A chunk as a person judges it: counts, samples, failures, cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from hypervisor.batches.chunk import EACH, HELD, Chunk
from hypervisor.batches.samples import Sample, choose_samples
from hypervisor.queue.result import actions_in, category_of, items_in, text_of
from hypervisor.queue.task import Batch
from hypervisor.runs.spec import TaskReport

MOST_FAILURES = 20
NOT_DONE = ("failed", "blocked", "review", "cancelled")


class Checkpoint(NamedTuple):
    """A chunk with what a person needs to judge it."""

    batch: str
    chunk: Chunk
    categories: dict[str, int]
    proposals: dict[str, int]
    samples: tuple[Sample, ...]
    failures: tuple[TaskReport, ...]
    seconds: float
    cost: float | None
    next: str
    tokens: int = 0
    estimated: bool = False  # the cost is, at least in part, from a table of prices


def checkpoint(
    batch: Batch, chunk: Chunk, reports: Sequence[TaskReport], every: Sequence[Chunk]
) -> Checkpoint:
    """Put together what is known of a chunk."""
    categories: Counter[str] = Counter()
    proposals: Counter[str] = Counter()
    for report in reports:
        for result in _results(report):
            categories[category_of(result)] += 1
            proposals.update(text_of(each, "do") or "unknown" for each in actions_in(result))
    failures = [report for report in reports if report.state in NOT_DONE]
    return Checkpoint(
        batch.name,
        chunk,
        dict(categories.most_common()),
        dict(proposals.most_common()),
        choose_samples(reports),
        tuple(failures[:MOST_FAILURES]),
        round(sum(report.seconds for report in reports), 3),
        _cost(reports),
        _next(batch, chunk, every),
        sum(report.tokens for report in reports),
        any(report.estimated for report in reports),
    )


def _cost(reports: Sequence[TaskReport]) -> float | None:
    known = [report.cost_micros for report in reports if report.cost_micros is not None]
    return sum(known) / 1e6 if known else None


def _results(report: TaskReport) -> list[Any]:
    """One for an item; a task that stood for a whole chunk reports several."""
    if report.state != "done":
        return []
    return list(items_in(report.result)) or [report.result]


def _next(batch: Batch, chunk: Chunk, every: Sequence[Chunk]) -> str:
    held = [each for each in every if each.state == HELD]
    if not held:
        return "this is the last chunk"
    total = sum(each.total for each in held)
    if batch.spec.get("gate") == EACH:
        return f"{held[0].label} with {held[0].total} tasks would run next"
    return f"the other {len(held)} chunks with {total} tasks would run next"
