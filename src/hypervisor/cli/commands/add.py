"""hv add"""

import argparse
import os
import sys

from hypervisor.cli import arguments
from hypervisor.cli.output import one_line, respond
from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput
from hypervisor.hive.branch import branch_here
from hypervisor.queue.add import add, check_task
from hypervisor.queue.context import Context
from hypervisor.queue.lifecycle import state_name
from hypervisor.queue.task import NewTask

EXAMPLE = """hv add "Fix the login page" --priority high
  find src -name '*.py' | hv add - --title 'Review {}' --batch review
  hv add --from tasks.jsonl --batch audit --dry-run"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "title",
        nargs="?",
        metavar="TITLE",
        help="title of the task; - reads titles from stdin, one per line",
    )
    source = parser.add_argument_group("adding many tasks")
    source.add_argument(
        "--from",
        dest="source",
        metavar="FILE",
        help="one task per line or row of a file; - is stdin",
    )
    source.add_argument(
        "--glob", metavar="PATTERN", help="one task per matching file, e.g. 'src/**/*.py'"
    )
    source.add_argument(
        "--format", choices=("lines", "jsonl", "csv"), help="format (default: by file name)"
    )
    source.add_argument(
        "-0", "--null", action="store_true", help="items end with NUL, as from find -print0"
    )
    source.add_argument(
        "--title", dest="template", metavar="TEXT", help="title, where {} is the item (default {})"
    )
    parser.add_argument(
        "--batch", metavar="NAME", help="batch to add to; created if it does not exist"
    )
    parser.add_argument("--key", help="skip the task if the batch already has one with this key")
    parser.add_argument(
        "--exclusive",
        action="append",
        metavar="KEY",
        help="never run at the same time as another task with this key",
    )
    parser.add_argument(
        "--inbox", action="store_true", help="put it into the inbox, until `hv update --accept`"
    )
    parser.add_argument("-n", "--dry-run", action="store_true", help="show what would be added")
    arguments.add_task_fields(parser, changing=False)
    arguments.add_retry_delay(parser)


def prepare(args: argparse.Namespace) -> int | None:
    """Read and check everything; a dry run ends here, without a store."""
    if args.title == "-":
        args.title, args.source = None, args.source or "-"
    if args.batch is not None:
        validate.label("the batch's name", args.batch)
    elif args.retry_delay is not None:
        raise InvalidInput("--retry-delay is a setting of a batch: add --batch NAME.")
    args.tasks = _tasks(args)
    return _preview(args.tasks, args) if args.dry_run else None


def run(hv: Context, args: argparse.Namespace) -> int:
    tasks = _delayed(_placed(hv, args), args, hv.now())
    added = add(hv, tasks, args.batch, retry_delay=args.retry_delay)
    many = args.source or args.glob or not added.ids
    respond(args, added, f"{len(added.ids)} added" if many else added.ids)
    if added.duplicates and not args.json:
        first = added.duplicates[0]
        print(
            f"{len(added.duplicates)} already in the batch, e.g. {one_line(first.key)} "
            f"({first.task}, {state_name(first.state)})",
            file=sys.stderr,
        )
    return 0


def _placed(hv: Context, args: argparse.Namespace) -> list[NewTask]:
    """The tasks with a default branch: that of the current task, else of the git branch."""
    branch = "" if args.branch else branch_here(hv, os.getcwd(), os.environ.get("HV_TASK", ""))
    tasks: list[NewTask] = args.tasks
    return [t if t.branch else t._replace(branch=branch) for t in tasks] if branch else tasks


def _delayed(tasks: list[NewTask], args: argparse.Namespace, now: int) -> list[NewTask]:
    """The tasks with the start time of --at or --in, by the store's clock, unless they have one."""
    start_at = arguments.start_time(args.at, args.delay, now)
    return [t._replace(start_at=start_at) if t.start_at is None else t for t in tasks]


def _tasks(args: argparse.Namespace) -> list[NewTask]:
    given = [args.title is not None, args.source is not None, args.glob is not None]
    if not any(given) and args.template is not None:
        raise InvalidInput("--title works only with --from or --glob; for one task: hv add TITLE")
    if sum(given) != 1:
        raise InvalidInput("give one of: a TITLE, --from FILE, or --glob PATTERN.")
    if args.key is not None and args.title is None:
        raise InvalidInput("--key works only with one task; of many, each line or row is a key.")
    base = NewTask(
        title=args.title or "",
        body=arguments.body(args.body) or "",
        type=args.type,
        priority=args.priority,
        key=args.key,
        branch=args.branch,
        assignee=args.assignee,
        requires=tuple(args.requires or ()),
        exclusive=tuple(args.exclusive or ()),
        after=tuple(args.after or ()),
        retries=args.retries,
        data=args.data,
        inbox=args.inbox,
    )
    if args.title is not None:
        return [check_task(base)]
    if args.data is not None and not isinstance(args.data, dict):
        raise InvalidInput("--data must be a JSON object when adding many tasks.")
    return _many(args, base)


def _many(args: argparse.Namespace, base: NewTask) -> list[NewTask]:
    from hypervisor.inputs.sources import glob_tasks, guess_format, read_tasks

    template = "{}" if args.template is None else args.template
    if args.glob is not None:
        return glob_tasks(args.glob, base, template)
    form = args.format or guess_format(args.source)
    try:
        if args.source == "-":
            return read_tasks(sys.stdin.buffer, form, base, template, args.null)
        with open(args.source, "rb") as file:
            return read_tasks(file, form, base, template, args.null)
    except OSError as error:
        raise InvalidInput(
            f"{args.source} cannot be read: {error.strerror}. Nothing was added."
        ) from None


def _preview(tasks: list[NewTask], args: argparse.Namespace) -> int:
    more = f", {len(tasks) - 10} of them not shown" if len(tasks) > 10 else ""
    count = f"{len(tasks)} would be added{more} (dry run: nothing was changed)"
    return respond(args, tasks, [*(one_line(task.title) for task in tasks[:10]), count])
