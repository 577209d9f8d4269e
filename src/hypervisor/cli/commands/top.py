"""hv top"""

import argparse
import time
from collections.abc import Collection

from hypervisor.cli.output import is_live_terminal, print_json, table
from hypervisor.cli.render import activity, clock, memory_text
from hypervisor.core.errors import EXIT_OK
from hypervisor.monitoring.progress import count, running
from hypervisor.monitoring.snapshot import Snapshot
from hypervisor.monitoring.status import CurrentAttempt, attempts, quick_status
from hypervisor.queue.context import Context
from hypervisor.queue.queries import batches

EXAMPLE = "hv top"
EVERY = 1.0
LOOKS_PER_COST = 15
SLOWEST = 5.0
MAX_BATCHES = 1_000
QUIT_KEYS = ("q", "Q", "\x1b", "\x04")


def configure(parser: argparse.ArgumentParser) -> None:
    """No options of its own."""


def run(hv: Context, args: argparse.Namespace) -> int:
    if args.json:
        print_json(attempts(hv), hv)
    elif not is_live_terminal():
        print_attempts(hv, attempts(hv), hv.now())
    else:
        _live(hv)
    return EXIT_OK


def print_attempts(
    hv: Context, shown: Collection[CurrentAttempt], now: int, with_batch: bool = True
) -> None:
    """Running attempts as a table."""
    names = _batch_names(hv) if with_batch else {}
    rows = [
        (
            clock(now - attempt.since),
            memory_text(attempt.memory),
            attempt.task,
            *([names.get(attempt.batch, attempt.batch)] if with_batch else []),
            attempt.title,
            activity(attempt),
        )
        for attempt in _longest_first(shown)
    ]
    batch = ("BATCH",) if with_batch else ()
    if rows:
        table(("AGE", "MEMORY", "TASK", *batch, "TITLE", "LAST LINE"), rows)


def _live(hv: Context) -> None:
    from hypervisor.cli.live import Screen, draw_top  # loads rich

    try:
        with Screen(whole=True, keys=True) as screen:
            key = ""
            while key not in QUIT_KEYS:
                began = time.monotonic()
                everything = quick_status(hv)._replace(attempts=attempts(hv))
                counts = count(everything.stats.states, everything.attempts)
                snapshot = Snapshot(everything, counts, hv.now(), batches=_batch_names(hv))
                screen.paint(draw_top(snapshot, *screen.size()))
                cost = time.monotonic() - began
                key = screen.key(min(max(cost * LOOKS_PER_COST, EVERY), SLOWEST))
    except KeyboardInterrupt:
        pass


def _batch_names(hv: Context) -> dict[str, str]:
    return {batch.id: batch.name for batch in batches(hv, MAX_BATCHES)}


def _longest_first(shown: Collection[CurrentAttempt]) -> list[CurrentAttempt]:
    return sorted(running(shown).values(), key=lambda attempt: (attempt.since, attempt.task))
