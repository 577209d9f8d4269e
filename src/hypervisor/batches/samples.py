"""Chooses the results of a chunk to show: typical and unusual ones of every category."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypervisor.core.records import NamedTuple
from hypervisor.queue.result import category_of, items_in, text_of
from hypervisor.runs.spec import TaskReport

PER_CATEGORY = 3
MAX_CATEGORIES = 20
MAX_LENGTH = 300


class Sample(NamedTuple):
    task: str
    title: str
    category: str
    rationale: str
    why: str  # why this one is shown


class _Candidate(NamedTuple):
    task: str
    title: str
    result: Any
    seconds: float
    attempts: int

    @property
    def length(self) -> int:
        return len(text_of(self.result, "rationale")) + len(self.title)


def choose_samples(reports: Sequence[TaskReport]) -> tuple[Sample, ...]:
    """Up to three of each category: the first, and those that stand out most."""
    by_category: dict[str, list[_Candidate]] = {}
    for report in reports:
        if report.state == "done":
            for candidate in _candidates(report):
                by_category.setdefault(category_of(candidate.result), []).append(candidate)
    rare_first = sorted(by_category, key=lambda name: (len(by_category[name]), name))
    return tuple(
        Sample(
            candidate.task,
            candidate.title[:MAX_LENGTH],
            name,
            text_of(candidate.result, "rationale")[:MAX_LENGTH],
            reason,
        )
        for name in rare_first[:MAX_CATEGORIES]
        for candidate, reason in _of_category(by_category[name])
    )


def _candidates(report: TaskReport) -> list[_Candidate]:
    parts = list(items_in(report.result))
    if not parts:
        return [_Candidate(report.id, report.title, report.result, report.seconds, report.attempts)]
    return [
        _Candidate(report.id, text_of(part, "item") or report.title, part, 0.0, report.attempts)
        for part in parts
    ]


def _of_category(candidates: list[_Candidate]) -> list[tuple[_Candidate, str]]:
    """Unusual means: a longer or shorter text, more time or more attempts than others."""
    from statistics import median  # slow to import

    usual_time = median(candidate.seconds for candidate in candidates)
    usual_length = median(candidate.length for candidate in candidates)

    def oddity(candidate: _Candidate) -> tuple[float, str]:
        slow = (candidate.seconds + 0.01) / (usual_time + 0.01)
        wordy = max(candidate.length + 10, usual_length + 10) / min(
            candidate.length + 10, usual_length + 10
        )
        tried = float(candidate.attempts)
        reasons = (
            (tried, f"{candidate.attempts} attempts"),
            (slow, "slowest"),
            (wordy, "unusual text"),
        )
        return max(reasons)

    ranked = sorted(candidates[1:], key=lambda candidate: -oddity(candidate)[0])[: PER_CATEGORY - 1]
    unusual = [
        (candidate, oddity(candidate)[1] if oddity(candidate)[0] > 1.2 else "another")
        for candidate in ranked
    ]
    return [(candidates[0], "the first"), *unusual]
