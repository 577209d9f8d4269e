"""Following a run to its end: progress while it lasts, the result when it is over.

Ctrl-C once drains (what runs may finish), twice stops what runs and puts it
back. The work itself is the supervisor's; if that dies, another is started.
"""

from __future__ import annotations

import signal
import time
from types import FrameType
from typing import Any

from hypervisor.domain.errors import EXIT_OK, EXIT_UNSUCCESSFUL
from hypervisor.faces.cli.output import print_json
from hypervisor.faces.cli.views import View, view_for
from hypervisor.operations import run as running
from hypervisor.operations.context import Context

INTERRUPTED = 130
OPEN = ("waiting", "active", "in_progress", "merging")
QUICKEST, SLOWEST = 0.05, 2.0
LOOKS_PER_COST = 15  # looking shall cost at most a fifteenth of the time
SUPERVISOR_LOOK = 1.0


def follow(hv: Context, submitted: running.Submitted, as_json: bool, quiet: bool) -> int:
    """Show progress until the batch has nothing more to do. Returns the exit code."""
    with Interrupts() as interrupts, view_for(submitted, as_json, quiet) as view:
        if submitted.to_do:
            _watch(hv, submitted.batch.id, view, interrupts)
    hv.launcher.forget_environment(submitted.batch.id)
    if as_json:
        print_json(running.summary(hv, submitted.batch.id))
    elif submitted.to_do:
        view.finish(running.summary(hv, submitted.batch.id), hv.now() - submitted.since)
    if interrupts.count:
        return INTERRUPTED
    return EXIT_UNSUCCESSFUL if running.unsuccessful(hv, submitted) else EXIT_OK


class Interrupts:
    """Counts how often somebody asked for an end, by Ctrl-C or by closing the terminal."""

    def __init__(self) -> None:
        self.count = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._before[number] = signal.signal(number, self._count)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _count(self, number: int, frame: FrameType | None) -> None:
        self.count += 1


def _watch(hv: Context, batch: str, view: View, interrupts: Interrupts) -> None:
    handled, looked_for_supervisor = 0, time.monotonic()
    while True:
        began = time.monotonic()
        now = running.status(hv, batch)
        view.show(now, hv.now(), interrupts.count)
        states = now.stats.states
        if not any(states[state] for state in OPEN):
            return
        if now.pauses and not states["in_progress"]:
            return
        if interrupts.count > handled:
            handled = interrupts.count
            _interrupt(hv, batch, handled)
        if began - looked_for_supervisor > SUPERVISOR_LOOK:
            looked_for_supervisor = began
            if now.supervisor is None:
                running.supervise(hv)
        cost = time.monotonic() - began
        time.sleep(min(max(cost * LOOKS_PER_COST, QUICKEST), SLOWEST))


def _interrupt(hv: Context, batch: str, count: int) -> None:
    running.pause(hv, batch, reason=running.INTERRUPTED)
    if count > 1:
        running.stop_batch(hv, batch)
