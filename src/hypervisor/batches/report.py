"""The data of a batch's report page.

Tasks are streamed; lists are bounded, with the number of entries left out. So the report of a
million tasks is no larger than that of some thousand.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hypervisor.batches.chunk import Chunk
from hypervisor.batches.pipeline_status import Overview, has_succeeded, pattern, what_of
from hypervisor.batches.sql import chunks as chunks_sql
from hypervisor.batches.sql import report as report_sql
from hypervisor.batches.timeline import Attempts, Bin, Timeline, read_attempts
from hypervisor.core import validate
from hypervisor.core.records import NamedTuple
from hypervisor.learning.learn import Learned, learned_about
from hypervisor.learning.record import Work
from hypervisor.queue import lifecycle
from hypervisor.queue.context import Context
from hypervisor.queue.receipt import Receipt
from hypervisor.queue.result import NO_CATEGORY, actions_in, category_of, items_in, text_of
from hypervisor.queue.sql import agent_sessions, queries
from hypervisor.queue.sql import receipts as receipts_sql
from hypervisor.queue.task import Batch
from hypervisor.runs.outputs.excerpt import EXCERPT_BYTES, excerpt
from hypervisor.runs.results import BAD, latest_output, reports
from hypervisor.runs.spec import TaskReport

SMALL = 2_000  # tasks; a batch with no more is kept in memory and listed in full
MAX_ROWS = 500
MAX_FAILURES = 60
MAX_BAD = 300
MAX_REASONS = 20
MAX_CATEGORIES = 40
MAX_RECEIPTS = 200
MAX_VERIFIED = 50_000
SLOWEST = 12
SAMPLES = 3
MAX_TEXT_LENGTH = 500
MAX_CHUNKS = 400
TYPED = 3  # tasks at either end of the list, whose types are read
LINES, MAX_LINE_LENGTH = 12, 240


class TaskLine(NamedTuple):
    """A task as a row of the report."""

    id: str
    title: str
    state: str
    category: str
    attempts: int
    milliseconds: int
    cpu_seconds: float
    peak_bytes: int
    message: str  # why it did not succeed, or its summary


class Failure(NamedTuple):
    """A task that did not succeed, with the end of its output."""

    task: TaskLine
    exit_code: int | None
    lines: tuple[str, ...]


class Category(NamedTuple):
    name: str
    items: int
    samples: tuple[str, ...]


class BatchReport(NamedTuple):
    """Times are in milliseconds since 1970."""

    batch: str
    id: str
    made_at: int
    what: str  # the command, function or agent that was run
    states: dict[str, int]
    total: int
    succeeded: bool
    begun: int
    ended: int
    attempts: int
    cpu_seconds: float
    peak_bytes: int
    timeline: Timeline
    durations: tuple[Bin, ...]
    median_ms: int | None
    slowest: tuple[TaskLine, ...]
    categories: tuple[Category, ...]
    proposals: dict[str, int]
    chunks: tuple[Chunk, ...]
    reasons: tuple[tuple[str, int], ...]
    failures: tuple[Failure, ...]
    bad: int
    receipts: tuple[Receipt, ...]
    receipts_total: int
    receipts_problem: str | None  # "" if not checked: there are too many
    tasks: tuple[TaskLine, ...]
    tokens: int = 0  # of agents
    cost: float | None = None
    estimated: bool = False  # the cost is, at least in part, from a table of prices
    pattern: Overview | None = None  # later stages and the reduce
    learned: tuple[Learned, ...] = ()  # about running its types of task in parallel


def report(hv: Context, batch: str, now: int | None = None) -> BatchReport:
    """Get the data of a batch's report: timeline, durations, failures, receipts."""
    stored = hv.store.read(queries.batch, validate.text("the batch", batch))
    at = hv.now() if now is None else now
    tally = _Tally(reports(hv, stored.id, at))
    attempts = read_attempts(hv, stored.id, at)
    rows = _rows(tally, attempts)
    receipts_total, receipts = hv.store.read(report_sql.last_receipts, stored.id, MAX_RECEIPTS)
    return BatchReport(
        stored.name,
        stored.id,
        at,
        what_of(stored),
        tally.states,
        sum(tally.states.values()),
        has_succeeded(hv, stored.id, tally.states),
        attempts.begun,
        attempts.ended,
        len(attempts),
        round(attempts.cpu_ms / 1000, 3),
        attempts.peak_kb * 1024,
        attempts.timeline({task.id: task.title for task in tally.held}),
        attempts.histogram(),
        attempts.median(),
        tuple(_slowest(hv, tally, attempts)),
        _categories(tally),
        tally.proposals,
        _chunks(hv, stored.id),
        _most_common(tally.reasons),
        tuple(_failure(hv, task, attempts) for task in tally.bad[:MAX_FAILURES]),
        tally.bad_count,
        tuple(map(_cut, receipts)),
        receipts_total,
        _problem(hv, stored.id, receipts_total),
        rows,
        *_spent(hv, stored.id),
        pattern(hv, stored.id),
        _learned(hv, stored, rows),
    )


def _spent(hv: Context, batch: str) -> tuple[int, float | None, bool]:
    """Tokens, cost, and whether that is an estimate."""
    spent = hv.store.read(agent_sessions.spent, batch)
    cost = spent.cost_micros / 1e6 if spent.cost_micros else None
    return spent.tokens, cost, spent.estimated


class _Tally:
    """Figures from one pass over the tasks of a batch."""

    def __init__(self, tasks: Iterable[TaskReport]) -> None:
        self.states: dict[str, int] = {}
        self.categories: dict[str, list[Any]] = {}
        self.proposals: dict[str, int] = {}
        self.reasons: dict[str, int] = {}
        self.bad: list[TaskReport] = []
        self.bad_count = 0
        self.held: list[TaskReport] = []
        self.too_many = False
        for task in tasks:
            self._add(task)

    def _add(self, task: TaskReport) -> None:
        self.states[task.state] = self.states.get(task.state, 0) + 1
        if not self.too_many:
            self.held.append(task)
            if len(self.held) > SMALL:
                self.too_many, self.held = True, []
        if task.state in BAD:
            self.bad_count += 1
            reason = (task.reason or task.state)[:200]
            if reason in self.reasons or len(self.reasons) < 10 * MAX_REASONS:
                self.reasons[reason] = self.reasons.get(reason, 0) + 1
            if len(self.bad) < MAX_BAD:
                self.bad.append(task)
        elif task.state == lifecycle.DONE:
            for part in list(items_in(task.result)) or [task.result]:
                self._classify(part, text_of(part, "item") or task.title)

    def _classify(self, result: Any, title: str) -> None:
        name = category_of(result)
        if name not in self.categories and len(self.categories) >= 10 * MAX_CATEGORIES:
            name = "(others)"
        entry = self.categories.setdefault(name, [0])
        entry[0] += 1
        if len(entry) <= SAMPLES:
            entry.append(title[:120])
        for action in actions_in(result):
            kind = action.get("do")
            if isinstance(kind, str) and (kind in self.proposals or len(self.proposals) < 20):
                self.proposals[kind[:40]] = self.proposals.get(kind[:40], 0) + 1


def _line(task: TaskReport, attempts: Attempts) -> TaskLine:
    category = category_of(task.result) if task.result is not None else NO_CATEGORY
    return TaskLine(
        task.id,
        task.title[:300],
        task.state,
        "" if category == NO_CATEGORY else category,
        task.attempts,
        attempts.took(task.id),
        task.cpu_seconds,
        task.peak_bytes,
        _said(task)[:300],
    )


def _said(task: TaskReport) -> str:
    """Why it did not succeed, or its summary and what became of its work."""
    where = f"{task.commit[:12]} on {task.target}" if task.commit else ""
    where = "changed nothing" if task.unchanged else where
    return task.reason or "; ".join(filter(None, (text_of(task.result, "summary"), where)))


def _rows(tally: _Tally, attempts: Attempts) -> tuple[TaskLine, ...]:
    """All tasks of a small batch, failures first; only the failures of a large one."""
    others = [task for task in tally.held if task.state not in BAD]
    chosen = [*tally.bad, *others][:MAX_ROWS]
    return tuple(_line(task, attempts) for task in chosen)


def _slowest(hv: Context, tally: _Tally, attempts: Attempts) -> Iterable[TaskLine]:
    by_id = {task.id: task for task in tally.held}
    for task_id, milliseconds in attempts.slowest(SLOWEST):
        if task_id in by_id:
            yield _line(by_id[task_id], attempts)._replace(milliseconds=milliseconds)
        else:
            task = hv.store.read(queries.task, task_id)
            texts = (task.id, task.title[:300], task.state, "")
            yield TaskLine(*texts, task.attempts, milliseconds, 0.0, 0, (task.reason or "")[:300])


def _failure(hv: Context, task: TaskReport, attempts: Attempts) -> Failure:
    return Failure(_line(task, attempts), task.exit_code, _tail(hv, task))


def _tail(hv: Context, task: TaskReport) -> tuple[str, ...]:
    """The last lines of the output, or those around the error message."""
    if not task.attempts:
        return ()
    number = latest_output(hv, task.id)
    size = hv.outputs.size(task.id, number) or 0
    start = max(size - EXCERPT_BYTES, 0)
    end = hv.outputs.read(task.id, number, start, EXCERPT_BYTES)
    return tuple(
        line if len(line) <= MAX_LINE_LENGTH else line[:MAX_LINE_LENGTH] + "…"
        for line in excerpt(end, start > 0, LINES).lines
    )


def _categories(tally: _Tally) -> tuple[Category, ...]:
    """The most frequent first; none at all if no worker named any."""
    if set(tally.categories) <= {NO_CATEGORY}:
        return ()
    categories = [
        Category(name, count, tuple(samples))
        for name, (count, *samples) in tally.categories.items()
    ]
    return tuple(sorted(categories, key=lambda c: (-c.items, c.name))[:MAX_CATEGORIES])


def _chunks(hv: Context, batch: str) -> tuple[Chunk, ...]:
    chunks = hv.store.read(chunks_sql.every, batch)[:MAX_CHUNKS]
    return tuple(
        chunk._replace(note=(chunk.note or "")[:MAX_TEXT_LENGTH] or None) for chunk in chunks
    )


def _learned(hv: Context, batch: Batch, rows: tuple[TaskLine, ...]) -> tuple[Learned, ...]:
    if not isinstance(batch.spec, dict):
        return ()
    types = {hv.store.read(queries.task, row.id).type for row in (*rows[:TYPED], *rows[-TYPED:])}
    return learned_about(hv, Work.of_batch(batch.spec), types)


def _most_common(reasons: dict[str, int]) -> tuple[tuple[str, int], ...]:
    ranked = sorted(reasons.items(), key=lambda reason: (-reason[1], reason[0]))
    return tuple(ranked[:MAX_REASONS])


def _cut(receipt: Receipt) -> Receipt:
    text, long = receipt.text, MAX_TEXT_LENGTH
    return receipt if len(text) <= long else receipt._replace(text=text[:long] + "…")


def _problem(hv: Context, chain: str, count: int) -> str | None:
    if not count:
        return None
    if count > MAX_VERIFIED:
        return ""
    return next((report.problem for report in hv.store.read(receipts_sql.check, chain)), None)
