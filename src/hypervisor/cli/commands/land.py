"""hv land"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from hypervisor.cli.latest import named_or_latest
from hypervisor.cli.output import one_line, respond
from hypervisor.core.errors import EXIT_OK, EXIT_UNSUCCESSFUL
from hypervisor.core.text import pluralize
from hypervisor.git.land import Landing, land
from hypervisor.git.queue_status import LandedTask, landed_tasks, merge_queue
from hypervisor.queue.lifecycle import state_name
from hypervisor.runs.spec import MERGE_MODES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hypervisor.queue.context import Context

EXAMPLE = """hv land review --dry-run
  hv land review --merge local --verify 'make test'"""
POLL = 0.25  # seconds


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "batch", nargs="?", metavar="BATCH", help="name or id of a batch (default: the latest one)"
    )
    parser.add_argument(
        "--merge",
        choices=[mode for mode in MERGE_MODES if mode],
        default="",
        help="where to merge, as for hv run (default: as the batch says, else branch)",
    )
    parser.add_argument("--target", default="", metavar="BRANCH", help="branch to merge into")
    parser.add_argument(
        "--verify",
        action="append",
        default=[],
        metavar="COMMAND",
        help="shell command that must succeed first",
    )
    parser.add_argument("--detach", action="store_true", help="do not wait for the merge queue")
    parser.add_argument(
        "-n", "--dry-run", action="store_true", help="show what would land, change nothing"
    )


def run(hv: Context, args: argparse.Namespace) -> int:
    batch = named_or_latest(hv, args.batch)
    planned = land(hv, batch, args.merge, args.target, args.verify, dry_run=args.dry_run)
    tasks, paused = landed_tasks(hv, [task.task for task in planned.tasks]), ""
    if not args.json:
        respond(args, planned, list(_plan(planned)))
    if planned.to_land and not (args.dry_run or args.detach):
        tasks, paused = _follow(hv, batch, planned)
    ended = [task for task in tasks if task.task in planned.to_land]
    bad = paused or any(task.state != "done" for task in ended)
    code = EXIT_UNSUCCESSFUL if bad and not (args.dry_run or args.detach) else EXIT_OK
    answer = {**planned._asdict(), "landed": tasks, "paused": paused}
    text = () if args.dry_run else list(_result(planned, ended, paused, args.detach))
    return respond(args, answer, text, code, hv=hv)


def _follow(hv: Context, batch: str, planned: Landing) -> tuple[list[LandedTask], str]:
    """Until all are decided, or the lane has to pause. The queue does not need us for that."""
    while True:
        tasks = landed_tasks(hv, [task.task for task in planned.tasks])
        waiting = [task for task in tasks if task.state == "merging"]
        paused = next((lane.paused for lane in merge_queue(hv, batch) if lane.paused), "")
        if not waiting or paused:
            return tasks, paused
        time.sleep(POLL)


def _plan(planned: Landing) -> Iterator[str]:
    count = len(planned.to_land)
    verb = "would land" if planned.dry_run else "to land"
    where = f"{planned.target} ({planned.mode})"
    yield one_line(f"{pluralize(count, 'task')} {verb} on {where}")
    if planned.verify:
        yield from (one_line(f"  verify: {command}") for command in planned.verify)
    elif count:
        yield "  NOT VERIFIED: nothing is tested before it lands; add --verify 'make test'"
    if planned.uncommitted:
        commit = planned.uncommitted[:12]
        yield f"  your uncommitted changes that the batch started from land too, as commit {commit}"
    for task in planned.tasks:
        files = task.skipped or pluralize(task.files, "file")
        yield one_line(f"  {task.task}  {task.title}: {files}")
    if planned.unfinished:
        left = pluralize(planned.unfinished, "task")
        yield f"  {left} not finished; run hv land again when they are done"
    if planned.dry_run:
        yield "(dry run: nothing was changed)"


def _result(
    planned: Landing, tasks: list[LandedTask], paused: str, detached: bool
) -> Iterator[str]:
    if detached:
        yield f"hv queue {planned.batch}  shows the merge queue"
        return
    for task in tasks:
        if task.commit:
            yield one_line(f"{task.task}  {task.commit[:12]} on {task.target}")
        elif task.state != "done":
            yield one_line(f"{task.task}  {state_name(task.state)}: {task.reason}")
    if paused:
        yield one_line(f"paused: {paused}")
        yield "the merge queue tries again by itself; hv queue shows it"
    if any(task.state == "review" for task in tasks):
        yield "hv review  lists what needs a decision"
