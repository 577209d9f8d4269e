"""The live frame of the merge queue, drawn by rich: loaded only on a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group

from hypervisor.cli.live import one_row
from hypervisor.cli.output import DIM, Line

QUIT: Line = [("q: quit", DIM)]


def draw_queue(lines: Iterable[Line], height: int) -> Group:
    """At most `height` rows; the first tasks are the next to be merged."""
    shown, room = list(lines), max(height - 3, 1)
    if len(shown) > room:
        more: Line = [(f"  and {len(shown) - room:,} more", DIM)]
        shown = [*shown[:room], more]
    return Group(*map(one_row, [*shown, QUIT]))
