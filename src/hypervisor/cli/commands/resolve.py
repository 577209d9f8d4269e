"""hv resolve"""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING

from hypervisor.cli.output import one_line, respond
from hypervisor.git.resolve import Resolution, resolve_conflict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hypervisor.queue.context import Context

EXAMPLE = """hv resolve 1q12deyb
  hv resolve 1q12deyb --done"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", metavar="TASK", help="id of a task in review")
    parser.add_argument(
        "--done", action="store_true", help="the conflicts are resolved: merge the workspace"
    )


def run(hv: Context, args: argparse.Namespace) -> int:
    made = resolve_conflict(hv, args.task, args.done)
    text = _handed_back(made) if args.done else _prepared(made)
    return respond(args, made, list(text), hv=hv)


def _handed_back(made: Resolution) -> Iterator[str]:
    yield f"{made.task} is merging; it is verified again"
    yield "hv queue  shows the merge queue"


def _prepared(made: Resolution) -> Iterator[str]:
    folder = shlex.quote(made.folder)
    yield one_line(f"{made.task}: {made.reason}")
    yield one_line(f"  workspace  {made.folder}")
    for path in made.conflicts:
        yield one_line(f"  conflict   {path}")
    if made.theirs:
        yield one_line(
            f"git -C {folder} diff {made.base[:12]} {made.ours[:12]}   this task's change"
        )
        yield one_line(
            f"git -C {folder} diff {made.base[:12]} {made.theirs[:12]}   the other change"
        )
    yield f"edit the files there, then: hv resolve {made.task} --done"
