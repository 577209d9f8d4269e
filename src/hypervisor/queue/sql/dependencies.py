"""The tasks around one: what it waits for, and what waits for it."""

from __future__ import annotations

from collections.abc import Sequence

from hypervisor.store.database import Row, Session, marks, pad

NEEDS = "SELECT task, needs FROM dependencies WHERE task IN ({}) ORDER BY needs LIMIT ?"
NEEDED = "SELECT task, needs FROM dependencies WHERE needs IN ({}) ORDER BY task LIMIT ?"
TASKS = """
SELECT t.id, d.title, t.state FROM tasks t JOIN details d ON d.task = t.id WHERE t.id IN ({})
"""


def edges(session: Session, tasks: Sequence[str], before: bool, most: int) -> list[tuple[str, str]]:
    """Pairs of a task and one that it needs; `before`: those that these tasks need."""
    sql = (NEEDS if before else NEEDED).format(marks(len(tasks)))
    return [(row[0], row[1]) for row in session.rows(sql, [*pad(tasks), most])]


def states(session: Session, tasks: Sequence[str]) -> list[Row]:
    """Id, title and state."""
    return session.rows(TASKS.format(marks(len(tasks))), pad(tasks))
