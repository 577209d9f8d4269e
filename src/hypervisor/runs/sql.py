"""Statements about running batches: specs, workers, running tasks, reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypervisor.core.errors import InvalidInput
from hypervisor.queue.lane import ClaimFilter, may_claim
from hypervisor.queue.lease import Worker
from hypervisor.queue.sql import agent_claims, event_log, insert
from hypervisor.queue.sql.lanes import get_lane, lane_book, set_merges
from hypervisor.queue.sql.picking import READY_LANES
from hypervisor.queue.task import Batch, Json
from hypervisor.runs.spec import ActiveWorker, Ready, Running, TaskReport, WorkingHost
from hypervisor.store.database import Session, marks, pad, slices
from hypervisor.store.settings import set_setting, setting

SET_SPEC = "UPDATE batches SET spec = ? WHERE id = ?"
SET_WORKERS = "UPDATE batches SET workers = ? WHERE id = ?"
WORKERS = "SELECT workers FROM batches WHERE id = ?"
MEMORY_PEAK = "SELECT bytes FROM memory_peaks WHERE type = ? AND agent = ?"
SET_MEMORY_PEAK = """
INSERT INTO memory_peaks (type, agent, bytes) VALUES (?, ?, ?)
ON CONFLICT (type, agent) DO UPDATE SET bytes = excluded.bytes
"""
RUN_BATCHES = "SELECT id FROM batches WHERE spec IS NOT NULL AND id IN ({})"
RUN_BATCHES_OF = """
SELECT DISTINCT b.id, b.name FROM tasks t JOIN batches b ON b.id = t.batch
WHERE b.spec IS NOT NULL AND t.id IN ({}) ORDER BY b.id
"""
REGISTER = """
INSERT INTO workers
    (id, name, host, boot, pid, pid_start, started_at, seen_at, batch, agent, leased_by)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, batch = excluded.batch,
    agent = excluded.agent, leased_by = excluded.leased_by, ended_at = NULL
"""
RETIRE = "UPDATE workers SET ended_at = ? WHERE id = ?"
HOSTS = """
SELECT host, boot, count(*), min(started_at), max(seen_at) FROM workers
WHERE batch IS NOT NULL AND ended_at IS NULL GROUP BY host, boot ORDER BY host, boot
"""
AT_WORK = """
SELECT id, name, host, boot, pid, pid_start, batch, started_at, agent FROM workers
WHERE boot = ? AND batch IS NOT NULL AND ended_at IS NULL
"""
RUNNING = """
SELECT t.id, d.title, t.lane, t.batch, t.attempt, a.claimed_at,
    w.id, w.name, w.host, w.boot, w.pid, w.pid_start
FROM tasks t
JOIN details d ON d.task = t.id
JOIN attempts a ON a.task = t.id AND a.number = t.attempt
JOIN workers w ON w.id = a.worker
WHERE t.state = 'in_progress' AND (? = '' OR t.batch = ?)
ORDER BY a.claimed_at, t.id LIMIT ?
"""
FEW_READY = """
SELECT count(*) FROM (
    SELECT 1 FROM tasks WHERE state = 'active' AND lane = ? ORDER BY rank LIMIT 100) AS few
"""
# `batch <> ''` is what tells both databases that the index of batches will do.
REPORT = """
SELECT t.id, d.title, t.state, t.reason, d.result, t.attempt,
    (SELECT coalesce(sum(coalesce(a.ended_at, ?) - a.claimed_at), 0)
        FROM attempts a WHERE a.task = t.id),
    (SELECT coalesce(sum(a.cpu_ms), 0) FROM attempts a WHERE a.task = t.id),
    (SELECT coalesce(max(a.peak_kb), 0) FROM attempts a WHERE a.task = t.id),
    (SELECT a.exit_code FROM attempts a WHERE a.task = t.id AND a.number = t.attempt), t.chunk,
    l.hash, l.target
FROM tasks t JOIN details d ON d.task = t.id
LEFT JOIN landings l ON l.task = t.id AND l.attempt = t.attempt
WHERE t.batch = ? AND t.batch <> '' AND t.id > ? ORDER BY t.id LIMIT ?
"""
REPORT_STATE = REPORT.replace("AND t.id > ?", "AND t.state = ? AND t.id > ?")
REPORT_CHUNK = (
    REPORT.partition("WHERE t.batch")[0]
    + """
WHERE t.batch = ? AND t.chunk = ? AND t.chunk > 0 ORDER BY t.id
"""
)
ANY_OF_BATCH = "SELECT 1 FROM sessions WHERE batch = ? LIMIT 1"
FIGURES = """
SELECT task, input_tokens + output_tokens + cached_tokens, cost_micros, estimated, outcome
FROM sessions WHERE task IN ({}) AND task <> '' ORDER BY task, id
"""
STATES = "SELECT id, state FROM tasks WHERE id IN ({})"
STUCK = """
WITH RECURSIVE stuck (id) AS (
    SELECT d.task FROM tasks w
    JOIN dependencies d ON d.task = w.id JOIN tasks n ON n.id = d.needs
    WHERE w.batch IN ({}) AND w.batch <> '' AND w.state = 'waiting'
        AND n.state IN ('failed', 'cancelled', 'blocked', 'review', 'inbox')
    UNION
    SELECT d.task FROM stuck s JOIN dependencies d ON d.needs = s.id
    JOIN tasks w ON w.id = d.task WHERE w.state = 'waiting')
SELECT t.batch, count(*) FROM stuck s JOIN tasks t ON t.id = s.id GROUP BY t.batch
"""
SINCE = """
SELECT state, count(*) FROM tasks
WHERE batch = ? AND batch <> '' AND updated_at >= ? GROUP BY state
"""

NOT_ENDED_BEFORE = """
SELECT id FROM tasks
WHERE batch = ? AND batch <> '' AND id > ?
    AND (state NOT IN ('done', 'failed', 'cancelled') OR updated_at >= ?)
ORDER BY id LIMIT ?
"""
OUTPUT_SIZES = """
SELECT t.id, a.output_bytes FROM tasks t
JOIN attempts a ON a.task = t.id AND a.number = t.attempt
WHERE t.id IN ({}) AND a.output_bytes > 0
"""
ANY_RUNNING = "SELECT 1 FROM tasks WHERE state = 'in_progress' AND batch = ? LIMIT 1"
CHANGED_AMONG = "SELECT count(*) FROM tasks WHERE id IN ({}) AND updated_at >= ?"


def declare(session: Session, name: str, spec: Json, actor: str, now: int) -> Batch:
    """Set the run spec of a batch, which is created if it is new."""
    batch = insert.get_or_create_batch(session, name, now, actor)
    merges = bool(isinstance(spec, dict) and spec.get("git_merge"))
    if not set_merges(session, batch.id, merges):
        verb = "is not merged" if merges else "is merged"
        raise InvalidInput(
            f"the work of batch {name!r} {verb}, and it has tasks already; name another batch"
        )
    text = event_log.dump(spec)
    if event_log.dump(batch.spec) != text:
        session.run(SET_SPEC, (text, batch.id))
        event_log.write(session, now, [event_log.Line("declare", "", batch.id, None, None, actor)])
    return batch._replace(spec=spec)


def register(
    session: Session, worker: Worker, batch: str, agent: str, now: int, *, leased_by: str = ""
) -> None:
    """`leased_by`: the host whose lease keeps its claims; "": each claim has its own lease."""
    session.run(REGISTER, (*worker, now, now, batch, agent, leased_by))


def retire(session: Session, worker: str, now: int) -> None:
    session.run(RETIRE, (now, worker))
    session.run(agent_claims.FORGET, (worker,))


def hosts(session: Session) -> list[WorkingHost]:
    """The hosts whose workers have not signed off."""
    return [WorkingHost(*row) for row in session.rows(HOSTS)]


def at_work(session: Session, boot: str) -> list[ActiveWorker]:
    return [ActiveWorker(Worker(*row[:6]), *row[6:]) for row in session.rows(AT_WORK, (boot,))]


def ready(session: Session, capabilities: tuple[str, ...] | None) -> list[Ready]:
    """The batches that workers with these capabilities could work on now, best first. With None,
    any capabilities: a batch is listed once for each set of capabilities it requires."""
    lane_book(session).refresh(session)  # a reader would not notice a pause otherwise
    by_key: dict[tuple[str, tuple[str, ...]], Ready] = {}
    for lane_id, rank in sorted(session.rows(READY_LANES), key=lambda row: row[1]):
        lane = get_lane(session, lane_id)
        offered = lane.requires if capabilities is None else capabilities
        if lane.batch and may_claim(lane, ClaimFilter(capabilities=offered), ""):
            key = lane.batch, lane.requires if capabilities is None else ()
            tasks = session.rows(FEW_READY, (lane_id,))[0][0]
            more = Ready(lane.batch, rank, lane.priority, (lane.type,), tasks)
            earlier = by_key.get(key)
            by_key[key] = (earlier.joined(more) if earlier else more)._replace(requires=key[1])
    if not by_key:
        return []
    batches = sorted({batch for batch, _ in by_key})
    run = {row[0] for row in session.rows(RUN_BATCHES.format(marks(len(batches))), pad(batches))}
    return [ready for ready in by_key.values() if ready.batch in run]


def run_batches_of(session: Session, tasks: Sequence[str]) -> dict[str, str]:
    """The ids and names of the batches of these tasks that workers of ours run."""
    return {
        row[0]: row[1]
        for part in slices(tasks)
        for row in session.rows(RUN_BATCHES_OF.format(marks(len(part))), pad(part))
    }


def running(session: Session, batch: str | None, limit: int) -> list[Running]:
    rows = session.rows(RUNNING, (batch or "", batch or "", limit))
    return [
        Running(row[0], row[1], lane.type, lane.priority, row[3], row[4], row[5], Worker(*row[6:]))
        for row in rows
        for lane in [get_lane(session, row[2])]
    ]


def scale(session: Session, workers: int | None, batch: str | None, actor: str, now: int) -> None:
    """Set the number of workers of a batch or of each host; None: the usual number."""
    if batch:
        session.run(SET_WORKERS, (workers, batch))
    else:
        set_setting(session, "workers", None if workers is None else str(workers))
    data = event_log.dump({"workers": workers})
    event_log.write(
        session, now, [event_log.Line("scale", "", batch or "", None, None, actor, data)]
    )


def scaled_workers(session: Session, batch: str | None) -> int | None:
    """The number of workers that `scale` set."""
    if batch:
        return next((row[0] for row in session.rows(WORKERS, (batch,))), None)
    workers = setting(session, "workers")
    return None if workers is None else int(workers)


def memory_peak(session: Session, task_type: str = "", agent: str = "") -> int | None:
    """The memory in bytes that an attempt of a type, or an agent, has needed so far."""
    return next((row[0] for row in session.rows(MEMORY_PEAK, (task_type, agent))), None)


def set_memory_peak(session: Session, task_type: str, agent: str, size: int) -> None:
    session.run(SET_MEMORY_PEAK, (task_type, agent, size))


def report(
    session: Session, batch: str, after: str, limit: int, now: int, state: str | None = None
) -> list[TaskReport]:
    """A page of a batch's tasks, or of those in a state, in the order of their ids."""
    sql, of = (REPORT, [batch]) if state is None else (REPORT_STATE, [batch, state])
    reports = [_report(row) for row in session.rows(sql, (now, *of, after, limit))]
    return _with_figures(session, batch, reports)


def report_chunk(session: Session, batch: str, number: int, now: int) -> list[TaskReport]:
    reports = [_report(row) for row in session.rows(REPORT_CHUNK, (now, batch, number))]
    return _with_figures(session, batch, reports)


def _with_figures(session: Session, batch: str, reports: list[TaskReport]) -> list[TaskReport]:
    """Add tokens, cost and the last outcome of agents to the reports of a batch's tasks."""
    if not reports or not session.rows(ANY_OF_BATCH, (batch,)):
        return reports
    by_task = {report.id: report for report in reports}
    for page in slices([report.id for report in reports]):
        for task, tokens, cost, estimated, outcome in session.rows(
            FIGURES.format(marks(len(page))), pad(page)
        ):
            report = by_task[task]
            has_cost = report.cost_micros is not None or cost is not None
            by_task[task] = report._replace(
                tokens=report.tokens + tokens,
                cost_micros=(report.cost_micros or 0) + (cost or 0) if has_cost else None,
                estimated=report.estimated or bool(estimated and cost),
                outcome=outcome or "",
            )
    return list(by_task.values())


def states(session: Session, tasks: Sequence[str]) -> dict[str, str]:
    """The states of those of these tasks that exist."""
    return dict(session.rows(STATES.format(marks(len(tasks))), pad(tasks))) if tasks else {}


def stuck(session: Session, batches: Sequence[str]) -> dict[str, int]:
    """How many tasks of these batches wait, directly or through others, for a task that has ended
    without being done."""
    return dict(session.rows(STUCK.format(marks(len(batches))), pad(batches))) if batches else {}


def changed_since(session: Session, batch: str, since: int) -> dict[str, int]:
    return dict(session.rows(SINCE, (batch, since)))


def not_ended_before(session: Session, batch: str, since: int, after: str, limit: int) -> list[str]:
    """A page of the tasks that were still open at that time, by id."""
    return [row[0] for row in session.rows(NOT_ENDED_BEFORE, (batch, after, since, limit))]


def output_sizes(session: Session, tasks: Sequence[str]) -> dict[str, int]:
    """The output sizes of the last attempts at these tasks, where not 0."""
    return {
        task: size
        for page in slices(tasks)
        for task, size in session.rows(OUTPUT_SIZES.format(marks(len(page))), pad(page))
    }


def any_running(session: Session, batch: str) -> bool:
    return bool(session.rows(ANY_RUNNING, (batch,)))


def changed_among(session: Session, tasks: Sequence[str], since: int) -> int:
    """How many of these tasks, each named once, have changed since then."""
    return sum(
        session.rows(CHANGED_AMONG.format(marks(len(page))), [*pad(page), since])[0][0]
        for page in slices(tasks)
    )


def _report(row: tuple[Any, ...]) -> TaskReport:
    task, title, state, reason, result, attempts, milliseconds, cpu, peak, code, chunk, *where = row
    return TaskReport(
        task,
        title,
        state,
        reason,
        event_log.load(result),
        attempts,
        int(milliseconds) / 1000,
        int(cpu) / 1000,
        int(peak) * 1024,
        code,
        chunk,
        commit=where[0] or "",
        target=where[1] or "",
        unchanged=state == "done" and where[0] == "",
    )
