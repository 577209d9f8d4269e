"""How a run is shown while it lasts: lines where nobody watches, a live picture on a terminal."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Protocol

from hypervisor.cli.live import Screen, can_show_pictures
from hypervisor.cli.output import one_line, say, wants_colour, width
from hypervisor.cli.progress import running
from hypervisor.cli.render import (
    DIM,
    RED,
    Frame,
    Rows,
    Span,
    clock,
    fit,
    glyphs,
    hints,
    picture,
    rate,
    render,
)
from hypervisor.queue.task import Task
from hypervisor.runs.status import Attempting

LINE_EVERY = 10_000
FRAME = 0.125  # seconds between two paintings at least
PLACE_KEPT_MS = 2_000


class View(Protocol):
    @property
    def shows(self) -> bool:
        """Whether there is anybody to whom it matters what runs and what has failed."""
        ...

    def __enter__(self) -> View: ...
    def __exit__(self, *_: object) -> None: ...
    def show(self, scene: Frame) -> None: ...
    def failed(self, tasks: Sequence[Task], more: bool) -> None:
        """Tell of failures; `more`: from now on they are only counted."""
        ...


def view_for(quiet: bool, stays: bool = False) -> View:
    """`stays`: leave the last picture there when it is over."""
    if quiet:
        return Silent()
    return Live(stays) if can_show_pictures() else Lines()


class Silent:
    """Nothing, for programs."""

    shows = False

    def __enter__(self) -> View:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def show(self, scene: Frame) -> None:
        return None

    def failed(self, tasks: Sequence[Task], more: bool) -> None:
        return None


class Lines(Silent):
    """A line now and then, for logs."""

    shows = True

    def __init__(self) -> None:
        self._said_at: int | None = None
        self._about: list[str] = []

    def show(self, scene: Frame) -> None:
        self._tell_hints(scene)
        if self._said_at is None:
            self._said_at = scene.now
        if scene.now - self._said_at < LINE_EVERY:
            return
        self._said_at = scene.now
        counts = scene.counts
        parts = [
            f"{counts.done:,} of {counts.total:,} done",
            f"{counts.failed:,} failed" if counts.failed else "",
            f"{counts.running:,} running" if counts.running else "",
            rate(scene.per_second),
            f"{clock(scene.left)} left" if scene.left is not None and scene.goes_on else "",
        ]
        say(", ".join(part for part in parts if part))

    def _tell_hints(self, scene: Frame) -> None:
        """Each once; while it winds up only the first, as the number in it changes."""
        found = [text for line in hints(scene) for text, _ in line]
        about = [str(scene.interrupts)] if scene.interrupts else found
        if scene.status.brakes and not (scene.interrupts or scene.status.pauses):
            about = [f"{each.account} {each.until}" for each in scene.status.brakes]
        if about != self._about:
            self._about = about
            say(*found)

    def failed(self, tasks: Sequence[Task], more: bool) -> None:
        say(*(render(failure(task), colours=False) for task in tasks))
        if more:
            say(MORE)


class Live(Silent):
    """A picture that is painted anew a few times a second, failures above it."""

    shows = True

    def __init__(self, stays: bool) -> None:
        self._screen = Screen()
        self._stays = stays
        self._places = Places()
        self._painted_at = 0.0
        self._above: list[list[Span]] = []
        self._colours = wants_colour()

    def __enter__(self) -> View:
        self._screen.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if self._stays:
            self._screen.leave()
        else:
            self._screen.clear()
            say(*self._take_above(self._screen.size()[0]))
        self._screen.__exit__()

    def failed(self, tasks: Sequence[Task], more: bool) -> None:
        self._above += [failure(task) for task in tasks]
        if more:
            self._above.append([(MORE, DIM)])

    def show(self, scene: Frame) -> None:
        at = time.monotonic()
        if at - self._painted_at < FRAME * 0.9:
            return
        self._painted_at = at
        columns, height = self._screen.size()
        rows = self._places.arranged(scene.status.attempts, scene.now)
        lines = [render(line, self._colours) for line in picture(scene, rows, columns, height)]
        self._screen.paint(lines, self._take_above(columns))

    def _take_above(self, columns: int) -> list[str]:
        lines, self._above = self._above, []
        return [render(fit(line, columns - 1), self._colours) for line in lines]


class Places:
    """Gives each worker its own row and keeps it there, so that nothing jumps about."""

    def __init__(self) -> None:
        self._workers: list[tuple[str, int] | None] = []
        self._needed_at = 0
        self._title_width = 0

    def arranged(self, attempts: Collection[Attempting], now: int) -> Rows:
        here = running(attempts)
        self._workers = [worker if worker in here else None for worker in self._workers]
        for worker in here:
            if worker not in self._workers:
                self._seat(worker)
        if not self._workers or self._workers[-1] is not None:
            self._needed_at = now
        while now - self._needed_at > PLACE_KEPT_MS and self._workers and not self._workers[-1]:
            self._workers.pop()
        longest = max((width(one_line(each.title)) for each in here.values()), default=0)
        self._title_width = max(self._title_width, longest)
        rows = tuple(None if worker is None else here[worker] for worker in self._workers)
        return Rows(rows, self._title_width)

    def _seat(self, worker: tuple[str, int]) -> None:
        if None in self._workers:
            self._workers[self._workers.index(None)] = worker
        else:
            self._workers.append(worker)


MORE = "further failures are only counted; `hv ls --state failed` lists them"


def failure(task: Task) -> list[Span]:
    """A failure on one line: id, title and reason."""
    reason = one_line(task.reason or task.state)
    return [
        (f"{glyphs().bad} ", RED),
        (f"{task.id}  ", DIM),
        (f"{one_line(task.title)}: ", ""),
        (reason, RED),
    ]
