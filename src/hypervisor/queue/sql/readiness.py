"""Stored readiness: a queued task is `active` if and only if nothing blocks it.

A change that frees a task calls `promote` in the same transaction; one that
blocks it calls `hold`. Nothing is computed at claim time.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from hypervisor.core.errors import DependencyCycle
from hypervisor.queue.sql import event_log, exclusive_keys
from hypervisor.queue.sql.lanes import get_lane
from hypervisor.store.database import Session, marks, pad, slices

READY_AMONG = """
SELECT id, lane, batch FROM tasks
WHERE id IN ({}) AND state = 'waiting' AND open_deps = 0 AND held = 0 AND start_at IS NULL
ORDER BY rank
"""
ACTIVATE = "UPDATE tasks SET state = 'active', updated_at = ? WHERE id IN ({})"
DEPENDENTS = "SELECT DISTINCT task FROM dependencies WHERE needs IN ({}) ORDER BY task"
LOCK = "SELECT id FROM tasks WHERE id IN ({}) ORDER BY id"
COUNT_DOWN = """
UPDATE tasks SET open_deps = open_deps -
    (SELECT count(*) FROM dependencies d WHERE d.task = tasks.id AND d.needs IN ({0}))
WHERE id IN ({1})
"""
ACTIVE_AMONG = "SELECT id, lane, batch FROM tasks WHERE id IN ({}) AND state = 'active'"
DEACTIVATE = "UPDATE tasks SET state = 'waiting', updated_at = ? WHERE id IN ({})"
COUNT_UP = "UPDATE tasks SET open_deps = open_deps + 1 WHERE id IN ({})"
UNQUEUE = "UPDATE task_keys SET queued = 0 WHERE task IN ({}) AND queued = 1"
DUE = """
UPDATE tasks SET start_at = NULL WHERE id IN (
    SELECT id FROM tasks
    WHERE state = 'waiting' AND start_at IS NOT NULL AND start_at <= ?
    ORDER BY start_at LIMIT ?)
    AND state = 'waiting' AND start_at <= ?
RETURNING id
"""
ANY_DUE = """
SELECT 1 FROM tasks WHERE state = 'waiting' AND start_at IS NOT NULL AND start_at <= ? LIMIT 1
"""
SWEEP_LIMIT = 1000
STATES = "SELECT id, state FROM tasks WHERE id IN ({}) ORDER BY id"
NEEDS = "SELECT task, needs FROM dependencies WHERE task IN ({})"
DELETE_DEPENDENCIES = "DELETE FROM dependencies WHERE task = ?"
SET_OPEN = "UPDATE tasks SET open_deps = ? WHERE id = ?"
HELD_AMONG = "SELECT number FROM chunks WHERE batch = ? AND state = 'held' AND number IN ({})"
REOPEN_CHUNK = """
UPDATE chunks SET state = 'open', decided_at = NULL
WHERE batch = ? AND number = ? AND state IN ('approved', 'rejected')
"""


def promote(session: Session, tasks: Sequence[str], now: int) -> None:
    """Make waiting tasks active once nothing blocks them."""
    for part in slices(tasks):
        rows = session.rows(READY_AMONG.format(marks(len(part))), pad(part))
        keyed = [task for task, lane, _ in rows if get_lane(session, lane).keyed]
        plain = [(task, batch) for task, lane, batch in rows if not get_lane(session, lane).keyed]
        if plain:
            ids = [task for task, _ in plain]
            session.run(ACTIVATE.format(marks(len(ids))), [now, *pad(ids)])
            event_log.write(
                session,
                now,
                [event_log.Line("ready", task, batch, None, "active", "") for task, batch in plain],
            )
        for task in keyed:
            exclusive_keys.reserve(session, task, now)


def dependency_done(session: Session, done: Sequence[str], now: int) -> None:
    """Count these finished tasks off their dependents and promote those that are free."""
    in_done = marks(len(done))
    dependents = [r[0] for r in session.rows(DEPENDENTS.format(in_done), pad(done))]
    for part in slices(dependents):
        _lock(session, part)
        session.run(COUNT_DOWN.format(in_done, marks(len(part))), [*pad(done), *pad(part)])
        promote(session, part, now)


def dependency_reopened(session: Session, needed: str, now: int) -> None:
    """A finished task is open again: its dependents that have not started wait for it."""
    dependents = [r[0] for r in session.rows(DEPENDENTS.format("?"), (needed,))]
    for part in slices(dependents):
        _lock(session, part)
        # First, or a key that `hold` frees would go to another one that must wait.
        session.run(UNQUEUE.format(marks(len(part))), pad(part))
        hold(session, part, now)
        session.run(COUNT_UP.format(marks(len(part))), pad(part))


def hold(session: Session, tasks: Sequence[str], now: int) -> None:
    """Make active tasks among these wait again."""
    rows = session.rows(ACTIVE_AMONG.format(marks(len(tasks))), pad(tasks))
    if not rows:
        return
    ids = [row[0] for row in rows]
    freed = [
        key
        for task, lane, _ in rows
        if get_lane(session, lane).keyed
        for key in exclusive_keys.drop(session, task)
    ]
    session.run(DEACTIVATE.format(marks(len(ids))), [now, *pad(ids)])
    event_log.write(
        session,
        now,
        [event_log.Line("hold", task, batch, None, "waiting", "") for task, _, batch in rows],
    )
    exclusive_keys.offer(session, freed, now)


def future_start(start_at: object, now: int) -> int | None:
    """The start time if it is in the future, otherwise None."""
    return start_at if isinstance(start_at, int) and start_at > now else None


def any_due(session: Session, now: int) -> bool:
    return bool(session.rows(ANY_DUE, (now,)))


def promote_due(session: Session, now: int) -> int:
    """Promote tasks whose start time has come, a bounded number at once."""
    due = sorted(row[0] for row in session.rows(DUE, (now, SWEEP_LIMIT, now)))
    promote(session, due, now)
    return len(due)


def _lock(session: Session, tasks: Sequence[str]) -> None:
    """Lock the rows in one order, so that two finishing tasks cannot deadlock."""
    if session.for_update:
        session.rows(LOCK.format(marks(len(tasks))) + session.for_update, pad(tasks))


# Dependencies between tasks that exist: reading, adding, refusing cycles


def done_among(session: Session, tasks: Sequence[str]) -> set[str]:
    """The done ones among these tasks, which are locked so that none finishes unnoticed."""
    return {
        row[0]
        for part in slices(tasks)
        for row in session.rows(STATES.format(marks(len(part))) + session.for_update, pad(part))
        if row[1] == "done"
    }


def replace_dependencies(session: Session, task: str, needs: Sequence[str]) -> None:
    """Make `task` wait for exactly these."""
    session.lock("dependencies")  # two concurrent changes could form a cycle that neither sees
    _refuse_cycle(session, task, needs)
    finished = done_among(session, sorted(needs))
    session.run(DELETE_DEPENDENCIES, (task,))
    session.insert("dependencies", [(task, needed) for needed in needs])
    session.run(SET_OPEN, (sum(n not in finished for n in needs), task))


def _refuse_cycle(session: Session, task: str, needs: Sequence[str]) -> None:
    """Follow the dependencies of the new ones, a level at a time; reaching `task` is a cycle."""
    came_from = dict.fromkeys(needs, task)
    level = list(came_from)
    while level:
        if task in level:
            cycle = [task]
            step = came_from[task]
            while step != task:
                cycle.append(step)
                step = came_from[step]
            raise DependencyCycle([*cycle, task][::-1])
        above: list[str] = []
        for part in slices(level):
            for lower, upper in session.rows(NEEDS.format(marks(len(part))), pad(part)):
                if upper not in came_from:
                    came_from[upper] = lower
                    above.append(upper)
        level = above


# Chunks, for adding and reopening tasks: is one held, was it decided before?


def lock_chunks(session: Session, batch: str) -> None:
    """Whether a chunk is held must not change between reading and writing."""
    session.lock(f"chunks {batch}")


def held_chunks(session: Session, batch: str, numbers: Collection[int]) -> set[int]:
    wanted = sorted(number for number in numbers if number)
    if wanted:
        lock_chunks(session, batch)
    return {
        row[0]
        for part in slices(wanted)
        for row in session.rows(HELD_AMONG.format(marks(len(part))), [batch, *pad(part)])
    }


def reopen_chunks(session: Session, batch: str, numbers: Collection[int]) -> None:
    """These chunks have unreviewed work: withdraw earlier decisions."""
    for number in sorted(number for number in numbers if number):
        session.run(REOPEN_CHUNK, (batch, number))
