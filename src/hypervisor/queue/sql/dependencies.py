"""Dependencies between tasks that exist: reading, adding, refusing cycles."""

from __future__ import annotations

from collections.abc import Sequence

from hypervisor.core.errors import DependencyCycle
from hypervisor.store.database import Session, marks, pad, slices

STATES = "SELECT id, state FROM tasks WHERE id IN ({}) ORDER BY id"
NEEDS = "SELECT task, needs FROM dependencies WHERE task IN ({})"
DELETE = "DELETE FROM dependencies WHERE task = ?"
SET_OPEN = "UPDATE tasks SET open_deps = ? WHERE id = ?"


def done_among(session: Session, tasks: Sequence[str]) -> set[str]:
    """Those that are done, locked so that none finishes unseen meanwhile."""
    return {
        row[0]
        for some in slices(tasks)
        for row in session.rows(STATES.format(marks(len(some))) + session.for_update, pad(some))
        if row[1] == "done"
    }


def replace(session: Session, task: str, needs: Sequence[str]) -> None:
    """Let `task` wait for exactly these from now on."""
    session.lock("dependencies")  # two new links could close a cycle that neither sees
    _refuse_cycle(session, task, needs)
    finished = done_among(session, sorted(needs))
    session.run(DELETE, (task,))
    session.insert("dependencies", [(task, needed) for needed in needs])
    session.run(SET_OPEN, (sum(n not in finished for n in needs), task))


def _refuse_cycle(session: Session, task: str, needs: Sequence[str]) -> None:
    """Walk upwards from the new needs, a level at a time; meeting `task` closes a cycle."""
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
        for some in slices(level):
            for lower, upper in session.rows(NEEDS.format(marks(len(some))), pad(some)):
                if upper not in came_from:
                    came_from[upper] = lower
                    above.append(upper)
        level = above
