"""hv kill"""

import argparse
import sys

from hypervisor.cli.bulk import dry_run
from hypervisor.cli.output import one_line, respond
from hypervisor.core.errors import EXIT_CODES, EXIT_OK, InvalidInput, RequestError
from hypervisor.core.text import pluralize
from hypervisor.queue.context import Context
from hypervisor.queue.steer import Moved
from hypervisor.runs.run import kill, stop_batch
from hypervisor.runs.status import attempts

EXAMPLE = """hv kill 1q12deyb --reason 'it loops'
  hv kill 1q12deyb --retry
  hv kill --batch pages --dry-run"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", nargs="*", metavar="TASK", help="ids, or the beginnings of them")
    parser.add_argument("--batch", metavar="NAME", help="all that run of this batch")
    parser.add_argument("--retry", action="store_true", help="put it back instead of failing it")
    parser.add_argument("--reason", default="", metavar="TEXT", help="why, for the log")
    parser.add_argument("--dry-run", action="store_true", help="show which, change nothing")


def run(hv: Context, args: argparse.Namespace) -> int:
    if bool(args.task) == (args.batch is not None):
        raise InvalidInput("name tasks, or all that run of a batch with --batch.")
    if args.dry_run:
        chosen = [hv.resolve(t) for t in args.task] if args.task else _running(hv, args.batch)
        return dry_run(chosen, args)
    if args.batch is not None and args.retry:
        stopped = stop_batch(hv, args.batch, args.reason)
        text = f"{pluralize(stopped, 'attempt')} stopped, the tasks go back into the queue"
        return respond(args, {"stopped": stopped}, text)
    chosen = args.task if args.batch is None else _running(hv, args.batch)
    moved: list[Moved] = []
    code = EXIT_OK
    for task in dict.fromkeys(chosen):
        try:
            moved.append(kill(hv, task, args.reason, args.retry))
        except RequestError as error:
            if args.batch is not None and error.code == "wrong_state":
                continue  # it has ended meanwhile
            code = code or EXIT_CODES[error.code]
            print(f"hv: {one_line(str(error))}", file=sys.stderr)
    lines = [f"{task.task} {task.state}" for task in moved]
    text = f"{pluralize(len(moved), 'attempt')} stopped"
    return respond(args, moved, lines if args.batch is None else text, code)


def _running(hv: Context, batch: str) -> list[str]:
    return [each.task for each in attempts(hv, batch)]
