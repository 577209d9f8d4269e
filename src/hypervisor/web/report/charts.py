"""The layout of drawings. The templates draw them, as SVG that stretches with the page; labels are
HTML. The canvas of the dashboard uses the same axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from hypervisor.batches.timeline import Bin, Segment, Timeline
from hypervisor.core.records import NamedTuple
from hypervisor.web.report.text import clock, day, milliseconds, minute, step, took

WIDTH = 1000.0
GAP = 10.0
LANE_HEIGHT = 14.0
MIN_WIDTH = 1.2  # a narrower bar would be invisible
TICKS = 5
BUSY = ("q1", "q1", "q2", "q3", "q4")


class Rect(NamedTuple):
    look: str  # its classes
    x: float
    y: float
    width: float
    height: float
    title: str = ""


class Axis:
    """Where a moment lies on a timeline whose pauses are cut out."""

    def __init__(self, stretches: Sequence[tuple[int, int]]) -> None:
        self._stretches = stretches
        self.gaps = max(len(stretches) - 1, 0)
        room = max(WIDTH - self.gaps * GAP, WIDTH / 4)
        self._gap = (WIDTH - room) / self.gaps if self.gaps else 0.0
        self._scale = room / max(sum(end - start for start, end in stretches), 1)

    def place(self, at: int) -> float:
        x = 0.0
        for start, end in self._stretches:
            if at < start:
                return max(x - self._gap, 0.0)
            if at <= end:
                return x + (at - start) * self._scale
            x += (end - start) * self._scale + self._gap
        return WIDTH

    def moment(self, share: float) -> int:
        """The moment at this share of the axis."""
        x, last = share * WIDTH, 0
        for start, end in self._stretches:
            wide = (end - start) * self._scale
            if x <= wide:
                return start + round(x / self._scale)
            x, last = max(x - wide - self._gap, 0.0), end
        return last

    def cuts(self) -> list[tuple[float, float, int]]:
        """Where pauses were cut out, how wide that is drawn, and how long they were."""
        return [
            (self.place(before[1]), self._gap, after[0] - before[1])
            for before, after in pairwise(self._stretches)
        ]


def lanes(timeline: Timeline) -> list[tuple[str, list[Rect]]]:
    """Each worker with its bars, and over them the pauses."""
    axis = Axis(timeline.stretches)
    gaps = [
        Rect("gap", round(x, 1), -1, round(width, 1), 16, f"nothing ran for {took(ms)}")
        for x, width, ms in axis.cuts()
    ]
    return [
        (
            lane.worker,
            [bar for segment in lane.segments for bar in _bars(axis, segment, timeline.single)]
            + gaps,
        )
        for lane in timeline.lanes
    ]


def _bars(axis: Axis, segment: Segment, single: bool) -> Iterator[Rect]:
    x = axis.place(segment.start)
    width = max(axis.place(segment.end) - x, MIN_WIDTH)
    left, width = round(min(x, WIDTH - width), 1), round(width, 1)
    length, start = took(segment.end - segment.start), clock(segment.start)
    if single:
        title = f"{segment.label} · {segment.outcome} · {length} · {start}"
        yield Rect(segment.outcome, left, 0, width, LANE_HEIGHT, title)
        return
    title = f"{segment.label} · {start}, {length}"
    look = f"cell {segment.outcome} {BUSY[round(4 * segment.busy)]}"
    yield Rect(look, left, 0, width, LANE_HEIGHT, title)
    if segment.bad:  # from the bottom, as high as its share, but never too low to be seen
        high = round(max(LANE_HEIGHT * segment.bad / max(segment.attempts, 1), 2.0), 2)
        yield Rect("cell failed", left, round(LANE_HEIGHT - high, 2), width, high, title)


def outcomes(timeline: Timeline) -> list[str]:
    """What the colors of a timeline stand for."""
    segments = [segment for lane in timeline.lanes for segment in lane.segments]
    shown = {segment.outcome for segment in segments}
    return sorted(shown | {"failed" for segment in segments if segment.bad})


def ticks(timeline: Timeline) -> list[str]:
    """The labels below a timeline."""
    if not timeline.stretches:
        return []
    axis = Axis(timeline.stretches)
    moments = [axis.moment(place / (TICKS - 1)) for place in range(TICKS)]
    one_day = day(timeline.stretches[0][0]) == day(timeline.stretches[-1][1])
    dates = ["" if one_day else f"{day(at)[5:]} " for at in moments]
    coarse = clock if one_day else minute
    for form in (coarse, clock, milliseconds):  # as coarse as still tells them apart
        labels = [date + form(at) for date, at in zip(dates, moments, strict=True)]
        if len(set(labels)) == TICKS:
            break
    return [label if label not in labels[:place] else "" for place, label in enumerate(labels)]


class Column(NamedTuple):
    """A column of a histogram."""

    attempts: int
    label: str
    title: str
    parts: tuple[Rect, Rect]


def columns(bins: Sequence[Bin]) -> Iterator[Column]:
    highest = max((column.good + column.bad for column in bins), default=1) or 1
    for low, high, good, bad in bins:
        label = f"< {step(high)}" if low == 0 else f"{step(low)}+"
        title = f"{good + bad:,} attempts, {bad:,} unsuccessful"
        done, failed = 100 * good / highest, 100 * bad / highest
        if good + bad and done + failed < 1.5:  # a small count must stay visible
            done, failed = (1.5, 0.0) if good >= bad else (0.0, 1.5)
        parts = (
            Rect("done", 0, round(100 - done, 1), 10, round(done, 1)),
            Rect("failed", 0, round(100 - done - failed, 1), 10, round(failed, 1)),
        )
        yield Column(good + bad, label, title, parts)
