"""A part of a batch's timeline, in as much detail as there is room for: attempt by attempt if there
are few, otherwise cells of equal time. However many attempts there are, the answer is bounded."""

from __future__ import annotations

from collections.abc import Sequence

from hypervisor.batches.timeline import MAX_BARS, Attempts, Lane, Segment
from hypervisor.core.records import NamedTuple
from hypervisor.queue.context import Context
from hypervisor.queue.sql import queries

MAX_ROWS = 64
MAX_CELLS = 300  # of a row
MIN_SPAN = 10  # milliseconds


class TimelineWindow(NamedTuple):
    """`stretches` are the times of the window in which anything ran. If `single`, every segment is
    an attempt and `label` is its task; `titles` has their titles."""

    start: int
    end: int
    whole: tuple[int, int]  # from the first attempt to the last
    stretches: tuple[tuple[int, int], ...]
    lanes: tuple[Lane, ...]
    workers: int
    hidden: int  # workers that have no lane
    attempts: int
    single: bool
    titles: dict[str, str]


def timeline_window(
    hv: Context, attempts: Attempts, start: int = 0, end: int = 0, cells: int = MAX_CELLS
) -> TimelineWindow | None:
    """The workers of a batch in a part of its time, or in all of it; None before the first
    attempt."""
    if not attempts:
        return None
    every = attempts.stretches()
    whole = every[0][0], every[-1][1]
    start = min(max(start, whole[0]), whole[1] - 1)
    end = min(max(end or whole[1], start + MIN_SPAN), max(whole[1], start + MIN_SPAN))
    stretches = _part(every, start, end)
    part = attempts.within(start, end)
    single = len(part) <= MAX_BARS
    count = min(max(cells, 1), MAX_CELLS)
    lanes = part.bars({}) if single else part.cells(stretches, count)
    rows = _rows(attempts.spans())
    titles = _titles(hv, lanes) if single else {}
    return TimelineWindow(
        start,
        end,
        whole,
        stretches,
        tuple(_joined(lanes, row) for row in rows[:MAX_ROWS]),
        len(attempts.names),
        sum(map(len, rows[MAX_ROWS:])),
        len(part),
        single,
        titles,
    )


def _part(
    stretches: Sequence[tuple[int, int]], start: int, end: int
) -> tuple[tuple[int, int], ...]:
    inside = [(max(low, start), min(high, end)) for low, high in stretches]
    return tuple((low, high) for low, high in inside if low < high) or ((start, end),)


def _rows(spans: Sequence[tuple[int, int]]) -> list[list[int]]:
    """The workers of each row, the same for every part of the time. If there are too many, those
    that began after another had ended share its row."""
    order = sorted(range(len(spans)), key=spans.__getitem__)
    if len(order) <= MAX_ROWS:
        return [[worker] for worker in order]
    rows: list[list[int]] = []
    for worker in order:
        free = next((row for row in rows if spans[row[-1]][1] <= spans[worker][0]), None)
        if free is None:
            rows.append([worker])
        else:
            free.append(worker)
    return rows


def _joined(lanes: Sequence[Lane], row: Sequence[int]) -> Lane:
    name = lanes[row[0]].worker
    segments: list[Segment] = [segment for worker in row for segment in lanes[worker].segments]
    return Lane(name if len(row) == 1 else f"{name} +{len(row) - 1}", tuple(segments))


def _titles(hv: Context, lanes: Sequence[Lane]) -> dict[str, str]:
    tasks = sorted({segment.label for lane in lanes for segment in lane.segments})
    return hv.store.read(queries.titles, tasks)
