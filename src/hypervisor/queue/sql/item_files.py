"""The files of items as attempts left them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from hypervisor.core.records import NamedTuple
from hypervisor.store.database import Row, Session, marks, pad, slices

SAVE = """
INSERT INTO item_files (task, attempt, size, mtime, digest) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (task) DO UPDATE SET attempt = excluded.attempt, size = excluded.size,
    mtime = excluded.mtime, digest = excluded.digest
"""
DONE = """
SELECT t.id, t.attempt, t.updated_at, f.size, f.mtime, f.digest
FROM tasks t LEFT JOIN item_files f ON f.task = t.id AND f.attempt = t.attempt
WHERE t.id IN ({}) AND t.state = 'done'
"""
# The tasks of the same item in later stages of a pipeline, which may have changed its file again.
LATER = """
WITH RECURSIVE later (first, task, key_hash) AS (
    SELECT d.task, d.task, d.key_hash FROM details d WHERE d.task IN ({})
    UNION
    SELECT l.first, n.task, l.key_hash FROM later l
    JOIN dependencies d ON d.needs = l.task
    JOIN details n ON n.task = d.task AND n.key_hash = l.key_hash)
SELECT l.first, f.size, f.mtime, f.digest FROM later l
JOIN tasks t ON t.id = l.task AND t.state = 'done'
JOIN item_files f ON f.task = t.id AND f.attempt = t.attempt
"""
# Tasks that are done although the same item has to run again in the previous stage.
BEHIND = """
SELECT DISTINCT d.task FROM dependencies d
JOIN tasks n ON n.id = d.needs AND n.state <> 'done'
JOIN details own ON own.task = d.task
JOIN details before ON before.task = d.needs AND before.key_hash = own.key_hash
WHERE d.task IN ({})
"""


class DoneFile(NamedTuple):
    """The last attempt at a done task, and the state in which it left the file, if recorded."""

    attempt: int
    done_at: int
    state: Row | None


def save(session: Session, rows: Sequence[Row]) -> None:
    """Record files, each as (task, attempt, size, mtime, digest)."""
    session.run_many(SAVE, rows)


def done_files(session: Session, tasks: Sequence[str]) -> dict[str, DoneFile]:
    """Those of the tasks that are done."""
    return {
        task: DoneFile(attempt, done_at, None if state[0] is None else tuple(state))
        for part in slices(tasks)
        for task, attempt, done_at, *state in session.rows(DONE.format(marks(len(part))), pad(part))
    }


def behind(session: Session, tasks: Sequence[str]) -> set[str]:
    """Those of the tasks whose item is not done in the stage before theirs."""
    return {
        task
        for part in slices(tasks)
        for (task,) in session.rows(BEHIND.format(marks(len(part))), pad(part))
    }


def files_of_stages(session: Session, tasks: Iterable[str]) -> dict[str, list[Row]]:
    """For each task, the states in which it and later stages left its file."""
    files: dict[str, list[Row]] = defaultdict(list)
    for part in slices(sorted(tasks)):
        for task, *state in session.rows(LATER.format(marks(len(part))), pad(part)):
            files[task].append(tuple(state))
    return files
