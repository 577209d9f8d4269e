"""The layout of a small graph of tasks: a column for each level, a box for each task."""

from __future__ import annotations

from hypervisor.core.records import NamedTuple
from hypervisor.core.text import one_line
from hypervisor.queue.dependencies import Neighbor, Neighborhood

BOX, HIGH = 200, 34
ACROSS, DOWN = 56, 12  # between boxes
MAX_TITLE = 22  # characters


class Box(NamedTuple):
    task: Neighbor
    x: int
    y: int
    label: str


class More(NamedTuple):
    """Tasks of a column that are not drawn."""

    x: int
    y: int
    tasks: int


class Drawing(NamedTuple):
    width: int
    height: int
    boxes: tuple[Box, ...]
    lines: tuple[str, ...]  # paths as SVG writes them
    more: tuple[More, ...]


def drawing(graph: Neighborhood) -> Drawing:
    levels = sorted({task.level for task in graph.tasks})
    columns = {level: [task for task in graph.tasks if task.level == level] for level in levels}
    rows = {level: len(columns[level]) + (level in graph.left_out) for level in levels}
    height = max(rows.values()) * (HIGH + DOWN) - DOWN
    boxes, more = [], []
    for place, level in enumerate(levels):
        x = place * (BOX + ACROSS)
        top = (height - rows[level] * (HIGH + DOWN) + DOWN) // 2
        for row, task in enumerate(columns[level]):
            boxes.append(Box(task, x, top + row * (HIGH + DOWN), _label(task.title)))
        if level in graph.left_out:
            y = top + len(columns[level]) * (HIGH + DOWN) + HIGH // 2
            more.append(More(x, y, graph.left_out[level]))
    at = {box.task.id: box for box in boxes}
    lines = tuple(
        _line(at[needs], at[waits]) for needs, waits in graph.edges if {needs, waits} <= at.keys()
    )
    width = len(levels) * (BOX + ACROSS) - ACROSS
    return Drawing(width, height, tuple(boxes), lines, tuple(more))


def _line(needs: Box, waits: Box) -> str:
    x, y = needs.x + BOX, needs.y + HIGH // 2
    to, down = waits.x, waits.y + HIGH // 2
    middle = (x + to) // 2
    return f"M{x} {y} C{middle} {y} {middle} {down} {to} {down}"


def _label(title: str) -> str:
    text = one_line(title)
    return text if len(text) <= MAX_TITLE else text[: MAX_TITLE - 1] + "…"
