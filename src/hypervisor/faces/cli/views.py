"""How a run is shown while it lasts: lines where nobody watches, a live picture on a terminal."""

from __future__ import annotations

import sys
from typing import Protocol

from hypervisor.faces.cli.output import duration
from hypervisor.operations.run import Status, Submitted, Summary

LINE_EVERY = 10_000


class View(Protocol):
    def __enter__(self) -> View: ...
    def __exit__(self, *_: object) -> None: ...
    def show(self, status: Status, now: int, interrupts: int) -> None: ...
    def finish(self, summary: Summary, took: int) -> None: ...


class Lines:
    """A line now and then, for logs."""

    def __init__(self, submitted: Submitted, quiet: bool) -> None:
        self._submitted, self._quiet = submitted, quiet
        self._said_at = submitted.since

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def show(self, status: Status, now: int, interrupts: int) -> None:
        if self._quiet or now - self._said_at < LINE_EVERY:
            return
        self._said_at = now
        states = status.stats.states
        print(f"{states['done']:,} done, {states['failed']:,} failed, "
              f"{status.stats.remaining:,} left", flush=True)  # fmt: skip

    def finish(self, summary: Summary, took: int) -> None:
        states = ", ".join(f"{count:,} {state}" for state, count in sorted(summary.states.items()))
        print(f"{states} in {duration(took)}", flush=True)


def view_for(submitted: Submitted, as_json: bool, quiet: bool) -> View:
    if sys.stdout.isatty() and not quiet and not as_json:
        pass
    return Lines(submitted, quiet or as_json)
