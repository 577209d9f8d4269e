"""hv restore"""

import argparse

from hypervisor.cli import saved_work
from hypervisor.cli.output import near_path, one_line, respond
from hypervisor.git.saved_work import restore
from hypervisor.queue.context import Context

EXAMPLE = """hv restore 1q12deyb --to /tmp/rescued
  hv restore 1q12deyb --attempt 1 --snapshot 3 --branch rescued"""


def configure(parser: argparse.ArgumentParser) -> None:
    saved_work.configure(parser)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--to", default="", metavar="FOLDER", help="write the files into this folder"
    )
    where.add_argument(
        "--branch", default="", metavar="NAME", help="create this branch in your repository"
    )


def run(hv: Context, args: argparse.Namespace) -> int:
    version = saved_work.version(hv, args)
    made = restore(hv, args.task, args.attempt, **version, to=args.to, branch=args.branch)
    place = f"branch {made.branch}" if made.branch else near_path(made.folder)
    return respond(args, made, f"{made.task} at {made.commit[:12]}: {one_line(place)}")
