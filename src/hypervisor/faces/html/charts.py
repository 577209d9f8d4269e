"""The drawings of a report, as SVG that stretches with the page; their labels are HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from hypervisor.faces.html.text import attribute, clock, day, say, step, took
from hypervisor.operations.timeline import Bin, Lane, Segment, Timeline

WIDTH = 1000.0
GAP = 10.0
HIGH = 14.0  # of a lane
LEAST = 1.2  # a bar that is narrower could not be seen
TICKS = 5
BUSY = ("q1", "q1", "q2", "q3", "q4")


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
        """Which moment lies at this share of the axis."""
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


def timeline(found: Timeline) -> str:
    axis = Axis(found.stretches)
    gaps = "".join(
        f'<rect class="gap" x="{x:.1f}" y="-1" width="{wide:.1f}" height="16">'
        f"<title>{took(long)} without any attempt</title></rect>"
        for x, wide, long in axis.cuts()
    )
    rows = "".join(_lane(axis, lane, gaps, found.single) for lane in found.lanes)
    labels = "".join(f"<span>{text}</span>" for text in _ticks(axis, found))
    ticks = f'<span class="axis"></span><div class="ticks">{labels}</div>'
    return f'<div class="lanes">{rows}{ticks}</div>'


def share_bar(counts: Mapping[str, int], total: int) -> str:
    """One bar for the whole, each part as wide as its share."""
    x, parts = 0.0, []
    for name, count in counts.items():
        wide = WIDTH * count / max(total, 1)
        parts.append(
            f'<rect class="{attribute(name)}" x="{x:.2f}" y="0" width="{wide:.2f}" height="10">'
            f"<title>{count:,} {attribute(name.replace('_', ' '))}</title></rect>"
        )
        x += wide
    return _svg("share", f"0 0 {WIDTH:.0f} 10", "".join(parts))


def histogram(bins: Sequence[Bin]) -> str:
    highest = max((each.good + each.bad for each in bins), default=1) or 1
    return f'<div class="bins">{"".join(_bin(each, highest) for each in bins)}</div>'


class Row(NamedTuple):
    """A name, its number, how that is told, and what else is to be said (as HTML)."""

    name: str
    number: int
    told: str
    more: str = ""
    kind: str = "done"


def bars(rows: Sequence[Row]) -> str:
    """A bar for each row, the longest for the highest number."""
    most = max((row.number for row in rows), default=1) or 1
    parts = []
    for row in rows:
        wide = WIDTH * row.number / most
        bar = f'<rect class="{row.kind}" x="0" y="0" width="{wide:.1f}" height="10"/>'
        parts.append(f"<span>{say(row.name)}</span>{_svg('', f'0 0 {WIDTH:.0f} 10', bar)}")
        parts.append(f"<b>{row.told}</b>" + (f"<small>{row.more}</small>" if row.more else ""))
    return f'<div class="bars">{"".join(parts)}</div>'


def _svg(kind: str, box: str, inner: str) -> str:
    name = f' class="{kind}"' if kind else ""
    return f'<svg{name} viewBox="{box}" preserveAspectRatio="none">{inner}</svg>'


def _lane(axis: Axis, lane: Lane, gaps: str, single: bool) -> str:
    drawn = "".join(_bar(axis, each, single) for each in lane.segments)
    svg = _svg("", f"0 0 {WIDTH:.0f} 14", drawn + gaps)
    return f'<span title="{attribute(lane.worker)}">{say(lane.worker)}</span>{svg}'


def _bar(axis: Axis, each: Segment, single: bool) -> str:
    x = axis.place(each.start)
    wide = max(axis.place(each.end) - x, LEAST)
    x = min(x, WIDTH - wide)
    length = took(each.end - each.start)
    if single:
        said = f"{each.said} · {each.outcome} · {length} · {clock(each.start)}"
        return _rect(each.outcome, x, wide, said)
    said = f"{each.said} · {clock(each.start)}, {length}"
    drawn = _rect(f"cell {each.outcome} {BUSY[round(4 * each.busy)]}", x, wide, said)
    if each.bad:  # from below, as high as its share, and never too low to be seen
        high = max(HIGH * each.bad / max(each.attempts, 1), 2.0)
        drawn += _rect("cell failed", x, wide, said, HIGH - high)
    return drawn


def _rect(look: str, x: float, wide: float, said: str, top: float = 0.0) -> str:
    return (
        f'<rect class="{attribute(look)}" x="{x:.1f}" y="{top:.4g}" width="{wide:.1f}" '
        f'height="{HIGH - top:.4g}"><title>{attribute(said)}</title></rect>'
    )


def _ticks(axis: Axis, found: Timeline) -> list[str]:
    if not found.stretches:
        return []
    moments = [axis.moment(place / (TICKS - 1)) for place in range(TICKS)]
    first, last = found.stretches[0][0], found.stretches[-1][1]
    if day(first) == day(last):
        return [clock(at) for at in moments]
    return [f"{day(at)[5:]} {clock(at)[:5]}" for at in moments]


def _bin(each: Bin, highest: int) -> str:
    good, bad = 100 * each.good / highest, 100 * each.bad / highest
    if each.good + each.bad and good + bad < 1.5:  # few are not none
        good, bad = (1.5, 0.0) if each.good >= each.bad else (0.0, 1.5)
    title = f"{each.good + each.bad:,} attempts, {each.bad:,} without success"
    drawn = (
        f"<title>{title}</title>"
        f'<rect class="done" x="0" y="{100 - good:.1f}" width="10" height="{good:.1f}"/>'
        f'<rect class="failed" x="0" y="{100 - good - bad:.1f}" width="10" height="{bad:.1f}"/>'
    )
    count = f"{each.good + each.bad:,}" if each.good + each.bad else "&nbsp;"
    below = f"&lt; {step(each.high)}" if each.low == 0 else f"{step(each.low)}+"
    return f"<div>{count}{_svg('', '0 0 10 100', drawn)}{below}</div>"
