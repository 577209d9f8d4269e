"""Deleting a batch, a few tasks at a time: no transaction takes long, and each can be repeated.

Events, receipts and what agents cost are kept: they are evidence, and budgets count them.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypervisor.core.ids import encode, new_numbers
from hypervisor.core.records import NamedTuple
from hypervisor.queue.sql import archive, counts, event_log, receipts
from hypervisor.store.database import Session, marks, pad

COUNTS = """
SELECT count(*), coalesce(sum(attempt), 0) FROM tasks WHERE batch = ? AND batch <> ''
"""
PAGE = """
SELECT id, attempt FROM tasks WHERE batch = ? AND batch <> '' AND id > ? ORDER BY id LIMIT ?
"""
# Ids begin with the time of creation.
SINGLE_TASKS = """
SELECT id, attempt FROM tasks
WHERE id > ? AND id < ? AND batch = '' AND state IN ('done', 'failed', 'cancelled')
    AND updated_at < ? AND NOT EXISTS (
        SELECT 1 FROM dependencies d JOIN tasks w ON w.id = d.task
        WHERE d.needs = tasks.id AND w.state = 'waiting')
ORDER BY id LIMIT ?
"""
UNMERGED = """
SELECT t.id FROM tasks t
WHERE t.batch = ? AND t.batch <> '' AND t.state = 'done'
    AND NOT EXISTS (SELECT 1 FROM landings l WHERE l.task = t.id)
LIMIT 1
"""
WAITING_FOR = """
SELECT t.id FROM tasks n JOIN dependencies d ON d.needs = n.id JOIN tasks t ON t.id = d.task
WHERE n.batch = ? AND n.batch <> '' AND n.state <> 'done' AND t.state = 'waiting' LIMIT 1
"""
OPEN_ACTIONS = """
SELECT count(*) FROM actions WHERE batch = ? AND state IN ('planned', 'applying', 'undoing')
"""
APPLIED = "SELECT count(*) FROM actions WHERE batch = ? AND state = 'applied'"
WORKERS = """
SELECT pid, pid_start FROM workers WHERE batch = ? AND boot = ? AND ended_at IS NULL
"""
SESSIONS = "SELECT id FROM sessions WHERE batch = ? AND task = '' ORDER BY id"
RECEIPTS = "SELECT count(*) FROM receipts WHERE chain = ?"
BEGIN = "UPDATE batches SET deleting = 1 WHERE id = ? AND deleting = 0 RETURNING id"
LOCK = "SELECT name FROM batches WHERE id = ?"
OF_TASKS = [
    f"DELETE FROM {table} WHERE {column} IN ({{}})"
    for table, column in (
        ("details", "task"),
        ("dependencies", "task"),
        ("dependencies", "needs"),
        ("task_keys", "task"),
        ("key_holds", "task"),
        ("attempts", "task"),
        ("stops", "task"),
        ("proposals", "task"),
        ("agent_claims", "task"),
        ("item_files", "task"),
        ("reduce_inputs", "task"),
        ("submissions", "task"),
        ("workspaces", "task"),
        ("merge_entries", "task"),
        ("landings", "task"),
        ("messages", "task"),
        ("tasks", "id"),
    )
]
SOME_ACTIONS = """
DELETE FROM actions WHERE batch = ? AND number IN (
    SELECT number FROM actions WHERE batch = ? ORDER BY number LIMIT ?) RETURNING number
"""
# A lane that has the highest number stays until there is a newer one: numbers only ever rise.
LANES = """
DELETE FROM lanes WHERE batch <> '' AND number < (SELECT max(number) FROM lanes)
    AND NOT EXISTS (SELECT 1 FROM batches b WHERE b.id = lanes.batch)
"""
OF_BATCH = (
    "DELETE FROM chunks WHERE batch = ?",
    "DELETE FROM pauses WHERE scope = 'batch' AND name = ?",
    "DELETE FROM pipeline_batches WHERE batch = ?",
    "DELETE FROM pipelines WHERE id = ?",
    "UPDATE pipelines SET reduce_batch = '', reduce_task = '' WHERE reduce_batch = ?",
    "DELETE FROM batches WHERE id = ?",
)


class Content(NamedTuple):
    """What a batch consists of."""

    tasks: int
    attempts: int
    receipts: int
    applied: int  # changes that could no longer be undone


class Obstacles(NamedTuple):
    """What speaks against deleting a batch now."""

    unfinished: dict[str, int]
    waiting_for: str  # a task elsewhere that waits for one that has ended and is not done
    open_actions: int


def content(session: Session, batch: str) -> Content:
    tasks, attempts = session.rows(COUNTS, (batch,))[0]
    lines = session.rows(RECEIPTS, (batch,))[0][0]
    return Content(tasks, int(attempts), lines, session.rows(APPLIED, (batch,))[0][0])


def obstacles(session: Session, batch: str) -> Obstacles:
    waiting = session.rows(WAITING_FOR, (batch,))
    return Obstacles(
        archive.unfinished(session, batch),
        waiting[0][0] if waiting else "",
        session.rows(OPEN_ACTIONS, (batch,))[0][0],
    )


def workers(session: Session, batch: str, boot: str) -> list[tuple[int, int]]:
    """The processes (pid and start time) that worked on it here and have not signed off."""
    return [(row[0], row[1]) for row in session.rows(WORKERS, (batch, boot))]


def begin(session: Session, batch: str, name: str, actor: str, now: int) -> None:
    """From now on nothing is added to it. The deletion is on record before anything is gone."""
    if session.rows(BEGIN, (batch,)):
        tasks, attempts, _, _ = content(session, batch)
        text = f"deleted batch {name}: {tasks} tasks, {attempts} attempts"
        receipts.append_to_batch(session, batch, actor, [text], now)


def page(session: Session, batch: str, after: str, limit: int) -> list[tuple[str, int]]:
    """Tasks in the order of their ids, each with the number of its last attempt."""
    return [(row[0], row[1]) for row in session.rows(PAGE, (batch, after, limit))]


def single_tasks(session: Session, before: int, after: str, limit: int) -> list[tuple[str, int]]:
    """Tasks without a batch that ended before then, and that nothing waits for."""
    youngest = encode(new_numbers(1, before, 0)[0])
    rows = session.rows(SINGLE_TASKS, (after, youngest, before, limit))
    return [(row[0], row[1]) for row in rows]


def is_unmerged(session: Session, batch: str) -> bool:
    """Whether the work of a task that is done has not been merged."""
    return bool(session.rows(UNMERGED, (batch,)))


def session_ids(session: Session, batch: str) -> list[str]:
    """The runs of agents that claimed by themselves, which have outputs of their own."""
    return [row[0] for row in session.rows(SESSIONS, (batch,))]


def delete_tasks(session: Session, tasks: Sequence[str]) -> None:
    counts.delete(session, tasks)
    for sql in OF_TASKS:
        session.run(sql.format(marks(len(tasks))), pad(tasks))


def delete_actions(session: Session, batch: str, limit: int) -> int:
    """Returns how many were deleted."""
    return len(session.rows(SOME_ACTIONS, (batch, batch, limit)))


def finish(session: Session, batch: str, data: dict[str, object], actor: str, now: int) -> bool:
    """Delete the batch itself. False: tasks were added just before its deletion began."""
    session.rows(LOCK + session.for_update, (batch,))  # a process that is adding to it comes first
    if session.rows(PAGE, (batch, "", 1)):
        return False
    for sql in OF_BATCH:
        session.run(sql, (batch,))
    counts.forget(session, batch)
    session.lock("lanes")
    session.run(LANES)
    event_log.note(session, "delete", data, actor, now, batch=batch)
    return True
