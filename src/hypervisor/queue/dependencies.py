"""The neighborhood of a task in the graph of dependencies."""

from __future__ import annotations

from hypervisor.core.records import NamedTuple
from hypervisor.queue.context import Context
from hypervisor.queue.sql import dependencies as sql

LEVELS = 2  # in either direction
MAX_IN_LEVEL = 8
MAX_READ = 200  # edges of a level


class Neighbor(NamedTuple):
    """`level`: negative before the task, 0 for the task itself, positive after it."""

    id: str
    title: str
    state: str
    level: int


class Neighborhood(NamedTuple):
    """`edges` lead from a task to one that waits for it. `left_out`: how many tasks of a level are
    not among `tasks`, as far as they were read."""

    tasks: tuple[Neighbor, ...]
    edges: tuple[tuple[str, str], ...]
    left_out: dict[int, int]


def neighborhood(hv: Context, task: str) -> Neighborhood | None:
    """The tasks that a task waits for and those that wait for it, two steps far; None if there are
    none."""
    task_id = hv.resolve(task)
    levels = {task_id: 0}
    edges: dict[tuple[str, str], None] = {}
    left_out: dict[int, int] = {}
    for before in (True, False):
        step, reached = (-1 if before else 1), [task_id]
        for distance in range(1, LEVELS + 1):
            pairs = hv.store.read(sql.edges, reached, before, MAX_READ)
            others = [needs if before else waits for waits, needs in pairs]
            found = [other for other in dict.fromkeys(others) if other not in levels]
            reached = found[:MAX_IN_LEVEL]
            if found[MAX_IN_LEVEL:]:
                left_out[step * distance] = len(found) - MAX_IN_LEVEL
            levels |= dict.fromkeys(reached, step * distance)
            kept = [(needs, waits) for waits, needs in pairs if {needs, waits} <= levels.keys()]
            edges |= dict.fromkeys(kept)
            if not reached:
                break
    if len(levels) == 1:
        return None
    rows = hv.store.read(sql.states, sorted(levels))
    tasks = [Neighbor(id, title, state, levels[id]) for id, title, state in rows]
    in_order = sorted(tasks, key=lambda task: (task.level, task.id))
    return Neighborhood(tuple(in_order), tuple(edges), left_out)
