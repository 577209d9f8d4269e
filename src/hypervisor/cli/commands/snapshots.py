"""hv snapshots"""

import argparse

from hypervisor.cli.output import clock, one_line, respond, table
from hypervisor.core.text import pluralize
from hypervisor.git.saved_work import SavedSnapshot, snapshots
from hypervisor.queue.context import Context

EXAMPLE = "hv snapshots 1q12deyb"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", metavar="TASK", help="id of the task, or a unique part of it")
    parser.add_argument("--attempt", type=int, metavar="N", help="only those of this attempt")


def run(hv: Context, args: argparse.Namespace) -> int:
    taken = snapshots(hv, args.task, args.attempt)
    return respond(args, taken, lambda: _print(taken))


def _print(taken: list[SavedSnapshot]) -> None:
    rows = [
        (
            str(snapshot.attempt),
            str(snapshot.number),
            clock(snapshot.at),
            pluralize(snapshot.files, "file"),
            snapshot.commit[:12],
            one_line(", ".join(snapshot.left_out)),
        )
        for snapshot in taken
    ]
    table(("ATTEMPT", "SNAPSHOT", "TIME", "CHANGED", "COMMIT", "LEFT OUT"), rows)
