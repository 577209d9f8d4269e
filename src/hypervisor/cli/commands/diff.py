"""hv diff"""

import argparse
import sys

from hypervisor.cli import saved_work
from hypervisor.cli.escape import EscapeFilter
from hypervisor.cli.output import one_line, respond
from hypervisor.core.text import pluralize
from hypervisor.git.saved_work import TaskDiff, diff
from hypervisor.queue.context import Context

EXAMPLE = """hv diff 1q12deyb
  hv diff 1q12deyb --stat
  hv diff 1q12deyb --at 14:05"""


def configure(parser: argparse.ArgumentParser) -> None:
    saved_work.configure(parser)
    parser.add_argument("--stat", action="store_true", help="only files and numbers of lines")


def run(hv: Context, args: argparse.Namespace) -> int:
    changes = diff(hv, args.task, args.attempt, **saved_work.version(hv, args))
    return respond(args, changes, lambda: _print(changes, args.stat))


def _print(changes: TaskDiff, only_numbers: bool) -> None:
    if not only_numbers and changes.text:
        _print_patch(changes.text.encode("utf-8", "surrogateescape") + b"\n")
        return
    for file in changes.files:
        lines = "binary" if file.added is None else f"+{file.added} -{file.removed}"
        print(f"  {lines:>12}  {one_line(file.path)}")
    print(f"{pluralize(len(changes.files), 'file')} changed since {changes.base[:12]}")


def _print_patch(patch: bytes) -> None:
    """To a program as it is, so that `git apply` can use it; to a terminal as safe text."""
    if sys.stdout.isatty():
        print(EscapeFilter(colours=False).feed(patch, last=True), end="")
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(patch)
    sys.stdout.buffer.flush()
