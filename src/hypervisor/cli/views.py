"""How the progress of a run is shown: not at all, as lines for logs, or live on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypervisor.cli.output import (
    DIM,
    RED,
    Line,
    glyphs,
    is_live_terminal,
    one_line,
    render,
    say,
    warn,
)
from hypervisor.cli.render import clock, hints, rate, waiting_line
from hypervisor.monitoring.snapshot import Snapshot
from hypervisor.queue.lifecycle import state_name
from hypervisor.queue.message import NEEDS_INPUT, question_of
from hypervisor.queue.task import Task

LINE_EVERY = 10_000
MORE = "more failures follow; to list all: hv ls --state failed"


class View:
    """Shows nothing but trouble such as a full disk."""

    shows_details = False  # whether running and failed tasks are shown
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
            warn(f"hv: {one_line(self._trouble)}")

    def failed(self, tasks: Sequence[Task], more: bool) -> None:
        """Show failures; `more`: from now on they are only counted."""

    def write_above(self, write: Callable[[], None]) -> None:
        """Let other code write to the terminal; its output stays."""
        write()


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
            "" if snapshot.interrupts else waiting_line(snapshot),
        ]
        say(", ".join(filter(None, parts)))

    def _print_hints(self, snapshot: Snapshot) -> None:
        """Print each hint once; while the run is ending only the first, as its number changes."""
        lines = [text for line in hints(snapshot) for text, _ in line]
        about = [str(snapshot.interrupts)] if snapshot.interrupts else lines
        if snapshot.status.cooldowns and snapshot.continues:
            about = [
                f"{cooldown.account} {cooldown.until}" for cooldown in snapshot.status.cooldowns
            ]
        elif snapshot.continues and snapshot.status.waiting:
            about = [snapshot.status.waiting.kind]  # the time in it changes
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
        (one_line(question_text(task) or task.reason or state_name(task.state)), RED),
    ]


def question_text(task: Task) -> str:
    """What a task asks, and how to answer; "" if it asks nothing."""
    question = question_of(task)
    return f"{NEEDS_INPUT}: {question} (hv answer {task.id} 'TEXT')" if question else ""


def view_for(quiet: bool, stays: bool = False, may_be_live: bool = True) -> View:
    """`stays`: leave the last frame on the screen at the end."""
    if quiet:
        return View()
    if not (may_be_live and is_live_terminal()):
        return Lines()
    from hypervisor.cli.live import LiveView  # loads rich

    return LiveView(stays)
