"""Several tasks at once for `retry` and `cancel`: named, or chosen by a filter."""

import argparse
import sys
from collections.abc import Callable, Sequence

from hypervisor.cli.output import one_line, respond
from hypervisor.core.errors import EXIT_CODES, EXIT_OK, InvalidInput, RequestError
from hypervisor.core.text import pluralize
from hypervisor.queue.context import Context
from hypervisor.queue.look import MOST_LISTED, list_tasks
from hypervisor.queue.steer import Moved


def configure(parser: argparse.ArgumentParser, states: tuple[str, ...]) -> None:
    """`states`: which tasks a filter takes that names no state."""
    parser.add_argument("task", nargs="*", metavar="TASK", help="ids, or the beginnings of them")
    parser.add_argument("--reason", default="", metavar="TEXT", help="why, for the log")
    parser.add_argument(
        "--state",
        action="append",
        default=[],
        metavar="STATE",
        help=f"all tasks in this state (default: {', '.join(states)})",
    )
    parser.add_argument("--batch", metavar="NAME", help="… of this batch")
    parser.add_argument("--type", help="… of this type")
    parser.add_argument("--dry-run", action="store_true", help="show which, change nothing")


def run(
    hv: Context, args: argparse.Namespace, act: Callable[..., Moved], states: tuple[str, ...]
) -> int:
    chosen = _choose(hv, args, states)
    if args.dry_run:
        return dry_run(chosen, args)
    moved: list[Moved | dict[str, object]] = []
    code = EXIT_OK
    for task in chosen:
        try:
            moved.append(act(hv, task, args.reason))
        except RequestError as error:
            code = code or EXIT_CODES[error.code]
            if args.json:
                moved.append({"task": task, "error": {"code": error.code, "message": str(error)}})
            print(f"hv: {one_line(str(error))}", file=sys.stderr)
    lines = [f"{task.task} {task.state}" for task in moved if isinstance(task, Moved)]
    return respond(args, moved, lines, code)


def dry_run(chosen: Sequence[str], args: argparse.Namespace) -> int:
    """Which tasks would be changed."""
    tasks = pluralize(len(chosen), "task")
    return respond(args, chosen, [*chosen, f"{tasks} (dry run: nothing was changed)"])


def _choose(hv: Context, args: argparse.Namespace, states: tuple[str, ...]) -> list[str]:
    by_filter = args.state or args.batch or args.type
    if bool(args.task) == bool(by_filter):
        raise InvalidInput("name tasks, or choose them by --state, --batch or --type.")
    if args.task:
        # Only a rehearsal looks them up first: in earnest, one bad id must not stop the rest.
        meant = map(hv.resolve, args.task) if args.dry_run else args.task
        return list(dict.fromkeys(meant))
    found = list_tasks(hv, args.state or states, args.batch, type=args.type, limit=MOST_LISTED)
    return [task.id for task in reversed(found)]  # what others wait for is mostly the older
