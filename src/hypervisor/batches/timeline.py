"""The attempts of a batch over time: lanes of workers, durations, the slowest.

An attempt is kept in some forty bytes, so that a million of them fit. A worker that claims several
tasks at once works on one at a time: an attempt begins when the previous one on the same worker has
ended, not when it was claimed.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping
from heapq import nlargest
from itertools import groupby

from hypervisor.batches.sql import report
from hypervisor.core.ids import LENGTH
from hypervisor.core.records import NamedTuple
from hypervisor.queue.context import Context
from hypervisor.queue.history import AttemptLine

PAGE = 500
MAX_BARS = 1_500
CELLS = 360  # of a lane that is not drawn attempt by attempt
MAX_LANES = 32
MAX_PAUSE_MS = 20_000  # nothing runs for longer, and for a good part: it is cut out
RUNNING, DONE, RELEASED = "running", "done", "released"
OUTCOMES = (DONE, RELEASED, RUNNING, "blocked", "failed", "crashed", "cancelled")
OTHER = len(OUTCOMES) - 1
EDGES = tuple(step * 10**power for power in range(8) for step in (1, 2, 5))  # milliseconds


class Segment(NamedTuple):
    """A part of a lane: one attempt, or several of them combined."""

    start: int
    end: int
    outcome: str
    attempts: int
    bad: int  # how many of them did not succeed
    busy: float  # the share of the time that was worked, up to 1
    label: str


class Lane(NamedTuple):
    worker: str
    segments: tuple[Segment, ...]


class Timeline(NamedTuple):
    """`stretches` are the times in which anything ran; the time in between is cut out."""

    stretches: tuple[tuple[int, int], ...]
    lanes: tuple[Lane, ...]
    workers: int
    single: bool  # every attempt is its own segment
    at_once: float  # how many ran at the same time, on average


class Bin(NamedTuple):
    """How many attempts took at least `low` and less than `high` milliseconds."""

    low: int
    high: int
    good: int
    bad: int


class Attempts:
    """All attempts of a batch, column by column."""

    def __init__(self, now: int) -> None:
        self.now = now
        self.cpu_ms = self.peak_kb = 0
        self.starts, self.ends = array("q"), array("q")
        self.workers, self.outcomes = array("i"), array("b")
        self.ids = bytearray()
        self.names: list[str] = []
        self._number: dict[str, int] = {}
        self._took: dict[str, int] | None = None

    def __len__(self) -> int:
        return len(self.starts)

    def add(self, line: AttemptLine) -> None:
        if line.worker not in self._number:
            self._number[line.worker] = len(self.names)
            self.names.append(line.name)
        self.workers.append(self._number[line.worker])
        self.starts.append(line.claimed_at)
        self.ends.append(max(self.now if line.ended_at is None else line.ended_at, line.claimed_at))
        outcome = line.outcome or RUNNING
        self.outcomes.append(OUTCOMES.index(outcome) if outcome in OUTCOMES else OTHER)
        self.ids += line.task.encode().ljust(LENGTH)[:LENGTH]
        self.cpu_ms += line.cpu_ms or 0
        self.peak_kb = max(self.peak_kb, line.peak_kb or 0)

    def separate(self) -> None:
        """Let each attempt begin when the previous one on the same worker has ended. Attempts whose
        ends were stored together share the time evenly."""
        free: dict[int, int] = {}
        order = sorted(range(len(self)), key=lambda i: (self.ends[i], self.workers[i]))
        for (end, worker), alike in groupby(order, lambda i: (self.ends[i], self.workers[i])):
            together = sorted(alike, key=self.starts.__getitem__)
            begin = min(max(self.starts[together[0]], free.get(worker, 0)), end)
            free[worker] = end
            for place, index in enumerate(together):
                self.starts[index] = begin + (end - begin) * place // len(together)
                self.ends[index] = begin + (end - begin) * (place + 1) // len(together)

    @property
    def begun(self) -> int:
        return min(self.starts, default=0)

    @property
    def ended(self) -> int:
        return max(self.ends, default=0)

    def took(self, task: str) -> int:
        """The total duration of a task's attempts."""
        if self._took is None:
            self._took = {}
            for index in range(len(self)):
                name = self._task(index)
                self._took[name] = self._took.get(name, 0) + self._length(index)
        return self._took.get(task, 0)

    def slowest(self, count: int) -> list[tuple[str, int]]:
        """The tasks with the longest attempts, with their duration."""
        durations: dict[str, int] = {}
        for index in nlargest(4 * count, range(len(self)), key=self._length):
            durations.setdefault(self._task(index), self._length(index))
        return list(durations.items())[:count]

    def median(self) -> int | None:
        durations = sorted(self._length(index) for index in self._ended())
        return durations[len(durations) // 2] if durations else None

    def histogram(self) -> tuple[Bin, ...]:
        """Attempts by duration, in steps of 1, 2, 5, 10 …; empty ends are left out."""
        from bisect import bisect_right

        good, bad = [0] * (len(EDGES) + 1), [0] * (len(EDGES) + 1)
        for index in self._ended():
            place = bisect_right(EDGES, self._length(index))
            (good if OUTCOMES[self.outcomes[index]] == DONE else bad)[place] += 1
        used = [place for place in range(len(good)) if good[place] or bad[place]]
        if not used:
            return ()
        edges = (0, *EDGES, EDGES[-1] * 10)
        return tuple(
            Bin(edges[place], edges[place + 1], good[place], bad[place])
            for place in range(used[0], used[-1] + 1)
        )

    def timeline(self, titles: Mapping[str, str]) -> Timeline:
        stretches = self.stretches()
        single = len(self) <= MAX_BARS
        lanes = self.bars(titles) if single else self.cells(stretches, CELLS)
        span = sum(end - start for start, end in stretches)
        worked = sum(self._length(index) for index in range(len(self)))
        packed = packed_lanes(lanes)
        at_once = round(worked / span, 2) if span else 0.0
        return Timeline(stretches, packed, len(self.names), single, at_once)

    def _ended(self) -> Iterator[int]:
        """Without released and running attempts: their length says nothing about the task."""
        return (i for i in range(len(self)) if OUTCOMES[self.outcomes[i]] not in UNDECIDED)

    def _length(self, index: int) -> int:
        return max(self.ends[index] - self.starts[index], 0)

    def _task(self, index: int) -> str:
        return self.ids[index * LENGTH : (index + 1) * LENGTH].decode().rstrip()

    def stretches(self) -> tuple[tuple[int, int], ...]:
        """The times in which anything ran; short pauses belong to them."""
        order = sorted(range(len(self)), key=self.starts.__getitem__)
        merged: list[list[int]] = []
        for index in order:
            start, end = self.starts[index], self.ends[index]
            if merged and start - merged[-1][1] <= MAX_PAUSE_MS:
                merged[-1][1] = max(merged[-1][1], end)
            else:
                merged.append([start, end])
        busy = sum(end - start for start, end in merged)
        joined: list[list[int]] = []
        for start, end in merged:
            if joined and start - joined[-1][1] <= max(MAX_PAUSE_MS, busy // 10):
                joined[-1][1] = end
            else:
                joined.append([start, end])
        return tuple((start, max(end, start + 1)) for start, end in joined)

    def within(self, start: int, end: int) -> Attempts:
        """The attempts that ran in this time, of the same workers."""
        part = Attempts(self.now)
        part.names = self.names
        for index in range(len(self)):
            if self.starts[index] <= end and self.ends[index] >= start:
                part.starts.append(self.starts[index])
                part.ends.append(self.ends[index])
                part.workers.append(self.workers[index])
                part.outcomes.append(self.outcomes[index])
                part.ids += self.ids[index * LENGTH : (index + 1) * LENGTH]
        return part

    def spans(self) -> list[tuple[int, int]]:
        """When each worker began and ended."""
        spans = [(sys.maxsize, 0)] * len(self.names)
        for start, end, worker in zip(self.starts, self.ends, self.workers, strict=True):
            first, last = spans[worker]
            spans[worker] = min(first, start), max(last, end)
        return spans

    def bars(self, titles: Mapping[str, str]) -> list[Lane]:
        """A lane for each worker, with a segment for each of its attempts."""
        lanes: list[list[Segment]] = [[] for _ in self.names]
        for index in sorted(range(len(self)), key=self.starts.__getitem__):
            task, outcome = self._task(index), OUTCOMES[self.outcomes[index]]
            title = titles.get(task, task)[:120]
            lanes[self.workers[index]].append(
                Segment(self.starts[index], self.ends[index], outcome, 1, 0, 1.0, title)
            )
        return [
            Lane(name, tuple(segments)) for name, segments in zip(self.names, lanes, strict=True)
        ]

    def cells(self, stretches: tuple[tuple[int, int], ...], count: int) -> list[Lane]:
        """A lane for each worker, divided into cells of equal time."""
        cell = max(sum(end - start for start, end in stretches) // count, 1)
        first, last = stretches[0][0], stretches[-1][1]
        lanes: list[dict[int, _Cell]] = [{} for _ in self.names]
        for index in range(len(self)):
            start, end = max(self.starts[index], first), min(self.ends[index], last)
            is_bad = OUTCOMES[self.outcomes[index]] not in (DONE, *UNDECIDED)
            cells = lanes[self.workers[index]]
            for place in range(start // cell, end // cell + 1):
                worked = min(end, (place + 1) * cell) - max(start, place * cell)
                before, ends_here = cells.get(place, EMPTY), place == end // cell
                cells[place] = _Cell(
                    before.worked + worked,
                    before.attempts + ends_here,
                    before.bad + (ends_here and is_bad),
                )
        return [
            Lane(name, tuple(_merged(cells_of_lane, cell)))
            for name, cells_of_lane in zip(self.names, lanes, strict=True)
        ]


UNDECIDED = (RUNNING, RELEASED)


class _Cell(NamedTuple):
    """The time worked in a cell, and the attempts that ended in it."""

    worked: int
    attempts: int
    bad: int


EMPTY = _Cell(0, 0, 0)


def read_attempts(hv: Context, batch: str, now: int) -> Attempts:
    """All attempts of a batch."""
    attempts = Attempts(now)
    after, lines = hv.store.read(report.attempts, batch, "", PAGE)
    while after:
        for line in lines:
            attempts.add(line)
        after, lines = hv.store.read(report.attempts, batch, after, PAGE)
    attempts.separate()
    return attempts


def packed_lanes(lanes: Iterable[Lane]) -> tuple[Lane, ...]:
    """Reduce the number of lanes: a worker that started after another had ended reuses its lane."""
    used = sorted((lane for lane in lanes if lane.segments), key=lambda e: e.segments[0].start)
    if len(used) <= MAX_LANES:
        return tuple(used)
    packed: list[list[Lane]] = []
    for lane in used:
        start = lane.segments[0].start
        free = next((row for row in packed if row[-1].segments[-1].end <= start), None)
        if free is not None:
            free.append(lane)
        else:
            packed.append([lane])
    return tuple(
        Lane(
            row[0].worker if len(row) == 1 else f"{row[0].worker} +{len(row) - 1}",
            tuple(segment for lane in row for segment in lane.segments),
        )
        for row in packed[:MAX_LANES]
    )


def _merged(cells: Mapping[int, _Cell], size: int) -> Iterator[Segment]:
    """Merge adjacent cells that look the same."""
    run: list[int] = []
    for place in sorted(cells):
        if run and not (
            place == run[-1] + 1 and _look(cells[place], size) == _look(cells[run[0]], size)
        ):
            yield _segment(cells, run, size)
            run = []
        run.append(place)
    if run:
        yield _segment(cells, run, size)


def _look(cell: _Cell, size: int) -> tuple[int, int]:
    bad = -(-7 * cell.bad // cell.attempts) if cell.attempts else 0
    return min(round(4 * cell.worked / size), 4), bad


def _segment(cells: Mapping[int, _Cell], run: list[int], size: int) -> Segment:
    attempts = sum(cells[place].attempts for place in run)
    bad = sum(cells[place].bad for place in run)
    busy = min(sum(cells[place].worked for place in run) / (len(run) * size), 1.0)
    text = f"{attempts:,} attempts" + (f", {bad:,} unsuccessful" if bad else "")
    start, end = run[0] * size, (run[-1] + 1) * size
    return Segment(start, end, DONE, attempts, bad, round(busy, 2), text)
