"""How a run is shown while it lasts: not at all, as lines for logs, or live on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from hypervisor.cli.output import DIM, RED, Line, glyphs, is_live_terminal, one_line, render, say
from hypervisor.cli.render import clock, hints, rate
from hypervisor.queue.task import Task
from hypervisor.runs.monitor import Snapshot

LINE_EVERY = 10_000
MORE = "further failures are only counted; `hv ls --state failed` lists them"


class View:
    """Shows nothing but trouble, which is everybody's concern."""

    shows_details = False  # whether anybody sees what runs and what has failed
    is_live = False

    def __init__(self) -> None:
        self._trouble = ""

    def __enter__(self) -> View:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def show(self, snapshot: Snapshot) -> None:
        trouble, self._trouble = self._trouble, snapshot.status.trouble
        if self._trouble not in ("", trouble):
            print(f"hv: {one_line(self._trouble)}", file=sys.stderr, flush=True)

    def failed(self, tasks: Sequence[Task], more: bool) -> None:
        """Show failures; `more`: from now on they are only counted."""


class Lines(View):
    """A line now and then, for logs."""

    shows_details = True

    def __init__(self) -> None:
        self._printed_at: int | None = None
        self._hints: list[str] = []

    def show(self, snapshot: Snapshot) -> None:
        self._print_hints(snapshot)
        if self._printed_at is None:
            self._printed_at = snapshot.now
        if snapshot.now - self._printed_at < LINE_EVERY:
            return
        self._printed_at = snapshot.now
        counts, left = snapshot.counts, snapshot.left
        parts = [
            f"{counts.done:,} of {counts.total:,} done",
            f"{counts.failed:,} failed" if counts.failed else "",
            f"{counts.running:,} running" if counts.running else "",
            rate(snapshot.per_second),
            f"{clock(left)} left" if left is not None and snapshot.continues else "",
        ]
        say(", ".join(filter(None, parts)))

    def _print_hints(self, snapshot: Snapshot) -> None:
        """Each once; while it winds up only the first, as the number in it changes."""
        lines = [text for line in hints(snapshot) for text, _ in line]
        about = [str(snapshot.interrupts)] if snapshot.interrupts else lines
        if snapshot.status.brakes and snapshot.continues:
            about = [f"{brake.account} {brake.until}" for brake in snapshot.status.brakes]
        if about != self._hints:
            self._hints = about
            say(*lines)

    def failed(self, tasks: Sequence[Task], more: bool) -> None:
        say(*(render(failure(task), colours=False) for task in tasks), *([MORE] if more else ()))


def failure(task: Task) -> Line:
    """A failure on one line: id, title and reason."""
    return [
        (f"{glyphs().bad} ", RED),
        (f"{task.id}  ", DIM),
        (f"{one_line(task.title)}: ", ""),
        (one_line(task.reason or task.state), RED),
    ]


def view_for(quiet: bool, stays: bool = False) -> View:
    """`stays`: leave the last frame there when it is over."""
    if quiet:
        return View()
    if not is_live_terminal():
        return Lines()
    from hypervisor.cli.live import LiveView  # loads rich

    return LiveView(stays)
