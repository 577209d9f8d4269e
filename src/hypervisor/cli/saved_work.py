"""Which version of a task's work is meant: for `hv diff` and `hv restore`."""

import argparse
from typing import TypedDict

from hypervisor.core import times
from hypervisor.queue.context import Context


class Version(TypedDict):
    snapshot: int | None
    at: int | None


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", metavar="TASK", help="id of the task, or a unique part of it")
    parser.add_argument("--attempt", type=int, metavar="N", help="attempt (default: the last one)")
    version = parser.add_mutually_exclusive_group()
    version.add_argument(
        "--snapshot", type=int, metavar="N", help="files at this snapshot (hv snapshots lists them)"
    )
    version.add_argument("--at", metavar="TIME", help="files at this time, e.g. 14:05")


def version(hv: Context, args: argparse.Namespace) -> Version:
    at = times.past_moment(args.at, hv.now()) if args.at else None
    return {"snapshot": args.snapshot, "at": at}
