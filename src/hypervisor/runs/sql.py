"""What running work needs of the ledger: run batches, pauses, stops, workers, reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypervisor.agents.sql import sessions
from hypervisor.queue.lane import ClaimFilter, may_claim
from hypervisor.queue.lease import Worker
from hypervisor.queue.sql import agent_claims, event_log, insert
from hypervisor.queue.sql.claims import READY_LANES
from hypervisor.queue.sql.lanes import get_lane, lane_book
from hypervisor.queue.task import Batch, Json
from hypervisor.runs.spec import AtWork, Pause, Ready, Running, Stop, TaskReport
from hypervisor.store.database import Session, marks, pad, slices
from hypervisor.store.settings import change_setting, set_setting

SET_SPEC = "UPDATE batches SET spec = ? WHERE id = ?"
RUN_BATCHES = "SELECT id FROM batches WHERE spec IS NOT NULL AND id IN ({})"
PAUSE = """
INSERT INTO pauses (scope, name, reason, actor, at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (scope, name) DO NOTHING RETURNING scope
"""
RESUME = "DELETE FROM pauses WHERE scope = ? AND name = ? RETURNING scope"
PAUSES = "SELECT scope, name, reason, actor, at FROM pauses ORDER BY scope, name"
ASK_STOP = """
INSERT INTO stops (task, attempt, next, reason, actor, at) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (task) DO UPDATE SET attempt = excluded.attempt, next = excluded.next,
    reason = excluded.reason, actor = excluded.actor, at = excluded.at
WHERE stops.attempt <> excluded.attempt OR stops.next <> 'cancel' OR excluded.next = 'cancel'
RETURNING task
"""
RUN_ATTEMPT = """
SELECT t.attempt, t.batch FROM tasks t
JOIN attempts a ON a.task = t.id AND a.number = t.attempt
JOIN workers w ON w.id = a.worker
WHERE t.id = ? AND t.state = 'in_progress' AND w.batch IS NOT NULL AND w.ended_at IS NULL
"""
STOPS = """
SELECT s.task, s.attempt, s.next, s.reason, s.actor FROM stops s
JOIN tasks t ON t.id = s.task AND t.attempt = s.attempt AND t.state = 'in_progress'
WHERE s.task IN ({})
"""
FORGET_STOP = "DELETE FROM stops WHERE task = ?"
REGISTER = """
INSERT INTO workers (id, name, host, boot, pid, pid_start, started_at, seen_at, batch, agent)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, batch = excluded.batch,
    agent = excluded.agent, ended_at = NULL
"""
RETIRE = "UPDATE workers SET ended_at = ? WHERE id = ?"
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
    SELECT 1 FROM tasks WHERE state = 'active' AND lane = ? LIMIT 100) AS few
"""
# `batch <> ''` is what tells both databases that the index of batches will do.
REPORT = """
SELECT t.id, d.title, t.state, t.reason, d.result, t.attempt,
    (SELECT coalesce(sum(coalesce(a.ended_at, ?) - a.claimed_at), 0)
        FROM attempts a WHERE a.task = t.id),
    (SELECT coalesce(sum(a.cpu_ms), 0) FROM attempts a WHERE a.task = t.id),
    (SELECT coalesce(max(a.peak_kb), 0) FROM attempts a WHERE a.task = t.id),
    (SELECT a.exit_code FROM attempts a WHERE a.task = t.id AND a.number = t.attempt), t.chunk
FROM tasks t JOIN details d ON d.task = t.id
WHERE t.batch = ? AND t.batch <> '' AND t.id > ? ORDER BY t.id LIMIT ?
"""
REPORT_CHUNK = (
    REPORT.partition("WHERE t.batch")[0]
    + """
WHERE t.batch = ? AND t.chunk = ? AND t.chunk > 0 ORDER BY t.id
"""
)
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

ANY_RUNNING = "SELECT 1 FROM tasks WHERE state = 'in_progress' AND batch = ? LIMIT 1"
CHANGED_AMONG = "SELECT count(*) FROM tasks WHERE id IN ({}) AND updated_at >= ?"


def declare(session: Session, name: str, spec: Json, actor: str, now: int) -> Batch:
    """The batch of that name, to be run so from now on."""
    batch = insert.batch_named(session, name, now)
    text = event_log.dump(spec)
    if event_log.dump(batch.spec) != text:
        session.run(SET_SPEC, (text, batch.id))
        event_log.write(session, now, [event_log.Line("declare", "", batch.id, None, None, actor)])
    return batch._replace(spec=spec)


def pause(session: Session, new: Pause, now: int) -> bool:
    """Let nobody claim from there. False if it was paused already."""
    if not session.rows(PAUSE, (new.scope, new.name, new.reason, new.actor, now)):
        return False
    lane_book(session).follow_pauses(session)
    _log_pause(session, "pause", new, now)
    return True


def resume(session: Session, old: Pause, now: int) -> bool:
    if not session.rows(RESUME, (old.scope, old.name)):
        return False
    lane_book(session).follow_pauses(session)
    _log_pause(session, "resume", old, now)
    return True


def pauses(session: Session) -> list[Pause]:
    return [Pause(*row) for row in session.rows(PAUSES)]


def ask_stop(session: Session, task: str, after: str, reason: str, actor: str, *, now: int) -> bool:
    """Ask the worker that runs the task to stop. False if none of ours does. The last word
    counts, but a cancel stays one: somebody was told that the task is being called off."""
    for attempt, batch in session.rows(RUN_ATTEMPT + session.wait_locked, (task,)):
        if session.rows(ASK_STOP, (task, attempt, after, reason, actor, now)):
            data = event_log.dump({"next": after, "reason": reason})
            event_log.write(
                session, now, [event_log.Line("stop", task, batch, attempt, None, actor, data)]
            )
        return True
    return False


def stops(session: Session, tasks: Sequence[str]) -> list[Stop]:
    if not tasks:
        return []
    return [Stop(*row) for row in session.rows(STOPS.format(marks(len(tasks))), pad(tasks))]


def forget_stop(session: Session, task: str) -> None:
    session.run(FORGET_STOP, (task,))


def register(session: Session, worker: Worker, batch: str, agent: str, now: int) -> None:
    session.run(REGISTER, (*worker, now, now, batch, agent))


def retire(session: Session, worker: str, now: int) -> None:
    session.run(RETIRE, (now, worker))
    session.run(agent_claims.FORGET, (worker,))


def at_work(session: Session, boot: str) -> list[AtWork]:
    return [AtWork(Worker(*row[:6]), *row[6:]) for row in session.rows(AT_WORK, (boot,))]


def ready(session: Session, capabilities: tuple[str, ...] | None) -> list[Ready]:
    """The batches that workers with these capabilities could work on now, best first. None:
    whatever it takes, which is told; a batch comes once for all that takes the same."""
    lane_book(session).refresh(session)  # who only looks would never notice a pause otherwise
    found: dict[tuple[str, tuple[str, ...]], Ready] = {}
    for lane_id, rank in sorted(session.rows(READY_LANES), key=lambda row: row[1]):
        lane = get_lane(session, lane_id)
        able = lane.requires if capabilities is None else capabilities
        if lane.batch and may_claim(lane, ClaimFilter(capabilities=able), ""):
            key = lane.batch, lane.requires if capabilities is None else ()
            tasks = session.rows(FEW_READY, (lane_id,))[0][0]
            more = Ready(lane.batch, rank, lane.priority, (lane.type,), tasks)
            met = found.get(key)
            found[key] = (met.joined(more) if met else more)._replace(requires=key[1])
    if not found:
        return []
    batches = sorted({batch for batch, _ in found})
    run = {row[0] for row in session.rows(RUN_BATCHES.format(marks(len(batches))), pad(batches))}
    return [each for each in found.values() if each.batch in run]


def running(session: Session, batch: str | None, limit: int) -> list[Running]:
    rows = session.rows(RUNNING, (batch or "", batch or "", limit))
    return [
        Running(row[0], row[1], lane.type, lane.priority, row[3], row[4], row[5], Worker(*row[6:]))
        for row in rows
        for lane in [get_lane(session, row[2])]
    ]


def scale(session: Session, workers: int | None, batch: str | None, actor: str, now: int) -> None:
    """How many workers there may be, of a batch or on each host; None: as it was planned."""
    name = f"workers {batch}" if batch else "workers"
    set_setting(session, name, None if workers is None else str(workers))
    data = event_log.dump({"workers": workers})
    event_log.write(
        session, now, [event_log.Line("scale", "", batch or "", None, None, actor, data)]
    )


def note_once(
    session: Session,
    setting: tuple[str, str],
    kind: str,
    data: Json,
    actor: str,
    *,
    batch: str,
    now: int,
) -> None:
    """An event that is written once for each value of a setting, by whoever comes first."""
    if change_setting(session, *setting):
        event_log.note(session, kind, data, actor, now, batch=batch)


def report(session: Session, batch: str, after: str, limit: int, now: int) -> list[TaskReport]:
    """A page of a batch's tasks in the order of their ids."""
    found = [_report(row) for row in session.rows(REPORT, (now, batch, after, limit))]
    return sessions.with_figures(session, batch, found)


def report_chunk(session: Session, batch: str, number: int, now: int) -> list[TaskReport]:
    found = [_report(row) for row in session.rows(REPORT_CHUNK, (now, batch, number))]
    return sessions.with_figures(session, batch, found)


def states(session: Session, tasks: Sequence[str]) -> dict[str, str]:
    """The states of those of these tasks that there are."""
    return dict(session.rows(STATES.format(marks(len(tasks))), pad(tasks))) if tasks else {}


def stuck(session: Session, batches: Sequence[str]) -> dict[str, int]:
    """How many tasks of these batches wait, directly or through others of them, for one that
    has ended and is not done."""
    return dict(session.rows(STUCK.format(marks(len(batches))), pad(batches))) if batches else {}


def changed_since(session: Session, batch: str, since: int) -> dict[str, int]:
    return dict(session.rows(SINCE, (batch, since)))


def any_running(session: Session, batch: str) -> bool:
    return bool(session.rows(ANY_RUNNING, (batch,)))


def changed_among(session: Session, tasks: Sequence[str], since: int) -> int:
    """How many of these tasks, each named once, have changed since then."""
    return sum(
        session.rows(CHANGED_AMONG.format(marks(len(some))), [*pad(some), since])[0][0]
        for some in slices(tasks)
    )


def _report(row: tuple[Any, ...]) -> TaskReport:
    task, title, state, reason, result, attempts, took, cpu, peak, code, chunk = row
    return TaskReport(
        task,
        title,
        state,
        reason,
        event_log.load(result),
        attempts,
        int(took) / 1000,
        int(cpu) / 1000,
        int(peak) * 1024,
        code,
        chunk,
    )


def _log_pause(session: Session, kind: str, which: Pause, now: int) -> None:
    batch = which.name if which.scope == "batch" else ""
    data = event_log.dump({"scope": which.scope, "name": which.name, "reason": which.reason})
    event_log.write(session, now, [event_log.Line(kind, "", batch, None, None, which.actor, data)])
