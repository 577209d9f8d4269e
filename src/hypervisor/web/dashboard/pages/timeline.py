"""The workers of a batch over time, as numbers that `static/timeline.js` draws on a canvas."""

from __future__ import annotations

import json
import time
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

from hypervisor.batches.timeline import OUTCOMES, RUNNING, Attempts, Segment, read_attempts
from hypervisor.batches.timeline_window import MAX_CELLS, TimelineWindow, timeline_window
from hypervisor.core.errors import InvalidInput
from hypervisor.core.records import NamedTuple
from hypervisor.queue.context import Context, batch_id
from hypervisor.queue.counts import batch_counts
from hypervisor.web.dashboard.page import Page, Raw, Request
from hypervisor.web.report.charts import Axis

MAX_DRAWN = 300_000  # tasks
MAX_KEPT = 3  # batches
MAX_ANSWERS = 20
MIN_AGE = 5.0  # seconds that attempts are kept, …
PATIENCE = 40  # … or this many times as long as reading them takes


class Kept(NamedTuple):
    """Attempts that were read before: zooming does not read them again."""

    until: float
    attempts: Attempts
    answers: dict[tuple[int, int, int], str]


_lock = Lock()
_kept: WeakKeyDictionary[Context, dict[str, Kept]] = WeakKeyDictionary()


def drawn(hv: Context, request: Request) -> tuple[str, str]:
    """A part of the time (`from`, `to`), or all of it."""
    batch = batch_id(hv, request.path["batch"]) or ""
    asked = request.number("from"), request.number("to"), request.number("cells", MAX_CELLS)
    with _lock:  # twelve tabs ask at once
        kept = _read(hv, batch, request.now)
        if asked not in kept.answers and len(kept.answers) < MAX_ANSWERS:
            kept.answers[asked] = _answer(hv, kept.attempts, asked)
    answer = kept.answers.get(asked) or _answer(hv, kept.attempts, asked)
    return "application/json", answer


def _read(hv: Context, batch: str, now: int) -> Kept:
    batches = _kept.setdefault(hv, {})
    began = time.monotonic()
    if batch in batches and began < batches[batch].until:
        return batches[batch]
    if batch_counts(hv, [batch])[batch].total > MAX_DRAWN:
        raise InvalidInput("the batch is too large to draw its workers here; use `hv report`")
    attempts = read_attempts(hv, batch, now)
    ended = time.monotonic()
    batches.pop(batch, None)
    while len(batches) >= MAX_KEPT:
        del batches[next(iter(batches))]
    batches[batch] = Kept(ended + max(MIN_AGE, PATIENCE * (ended - began)), attempts, {})
    return batches[batch]


def _answer(hv: Context, attempts: Attempts, asked: tuple[int, int, int]) -> str:
    window = timeline_window(hv, attempts, *asked)
    return json.dumps(_columns(window) if window else None, separators=(",", ":"))


def _columns(window: TimelineWindow) -> dict[str, Any]:
    """Places are thousandths of the width; pauses are cut out."""
    axis = Axis(window.stretches)
    tasks = {task: place for place, task in enumerate(window.titles)}
    return {
        "from": window.start,
        "to": window.end,
        "whole": window.whole,
        "single": window.single,
        "workers": window.workers,
        "hidden": window.hidden,
        "attempts": window.attempts,
        "outcomes": OUTCOMES,
        "running": any(s.outcome == RUNNING for lane in window.lanes for s in lane.segments[-1:]),
        "stretches": [
            (start, end, round(axis.place(start), 2), round(axis.place(end), 2))
            for start, end in window.stretches
        ],
        "cuts": [(round(x, 2), round(width, 2), ms) for x, width, ms in axis.cuts()],
        "tasks": [(task, title[:120]) for task, title in window.titles.items()],
        "lanes": [
            (lane.worker, [_bar(axis, segment, tasks) for segment in lane.segments])
            for lane in window.lanes
        ],
    }


def _bar(axis: Axis, segment: Segment, tasks: dict[str, int]) -> tuple[float | int, ...]:
    x = axis.place(segment.start)
    return (
        round(x, 2),
        round(axis.place(segment.end) - x, 2),
        segment.start,
        segment.end - segment.start,
        OUTCOMES.index(segment.outcome),
        segment.attempts,
        segment.bad,
        segment.busy,
        tasks.get(segment.label, -1),
    )


PAGES: tuple[Page, ...] = ()
RAW = (Raw("/batches/{batch}/timeline.json", drawn),)
