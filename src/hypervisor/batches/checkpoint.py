"""What a reviewer sees of a chunk: counts, samples, failures, cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from hypervisor.batches.chunk import HELD, Chunk
from hypervisor.batches.samples import Sample, choose_samples
from hypervisor.core.records import NamedTuple
from hypervisor.queue.result import actions_in, category_of, items_in, text_of
from hypervisor.queue.task import Batch
from hypervisor.runs.spec import TaskReport

MAX_FAILURES = 20
NOT_DONE = ("failed", "blocked", "review", "cancelled")


class Checkpoint(NamedTuple):
    """A chunk with the figures for its review."""

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
    digest: str = ""  # of everything that is decided about; `decide` refuses an old one


def digest_of(chunk: Chunk, reports: Sequence[TaskReport]) -> str:
    """Changes when a task of the chunk, a result or the decision changes."""
    from hypervisor.batches.plans.action import digest

    tasks = [(report.id, report.state, report.attempts, report.result) for report in reports]
    return digest(chunk.number, chunk.state, chunk.decided_at, sorted(tasks, key=lambda t: t[0]))


def checkpoint(
    batch: Batch, chunk: Chunk, reports: Sequence[TaskReport], every: Sequence[Chunk]
) -> Checkpoint:
    """The checkpoint of a chunk, from the reports of its tasks."""
    categories: Counter[str] = Counter()
    proposals: Counter[str] = Counter()
    for report in reports:
        for result in _results(report):
            categories[category_of(result)] += 1
            proposals.update(text_of(action, "do") or "unknown" for action in actions_in(result))
    failures = [report for report in reports if report.state in NOT_DONE]
    return Checkpoint(
        batch.name,
        chunk,
        dict(categories.most_common()),
        dict(proposals.most_common()),
        choose_samples(reports),
        tuple(failures[:MAX_FAILURES]),
        round(sum(report.seconds for report in reports), 3),
        _cost(reports),
        _next(batch, chunk, every),
        sum(report.tokens for report in reports),
        any(report.estimated for report in reports),
        digest_of(chunk, reports),
    )


def _cost(reports: Sequence[TaskReport]) -> float | None:
    costs = [report.cost_micros for report in reports if report.cost_micros is not None]
    return sum(costs) / 1e6 if costs else None


def _results(report: TaskReport) -> list[Any]:
    """The results of a task: one, or several if the task covers a whole chunk."""
    if report.state != "done":
        return []
    return list(items_in(report.result)) or [report.result]


def _next(batch: Batch, chunk: Chunk, every: Sequence[Chunk]) -> str:
    held = [other for other in every if other.state == HELD]
    if not held:
        return "this is the last chunk"
    total = sum(other.total for other in held)
    if batch.spec.get("gate") == "each":
        return f"{held[0].label} with {held[0].total} tasks would run next"
    return f"the other {len(held)} chunks with {total} tasks would run next"
