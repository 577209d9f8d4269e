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
from hypervisor.queue.task import NewTask

EXAMPLE = """hv add "Fix the login page" --priority high
  find src -name '*.py' | hv add --from - --title 'Review {}' --batch review
  hv add --from tasks.jsonl --batch audit --dry-run"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("title", nargs="?", metavar="TITLE", help="what is to be done")
    source = parser.add_argument_group("many at once")
    source.add_argument(
        "--from", dest="source", metavar="FILE", help="a task a line or row; - is stdin"
    )
    source.add_argument("--glob", metavar="PATTERN", help="a task a file, e.g. 'src/**/*.py'")
    source.add_argument("--format", choices=("lines", "jsonl", "csv"), help="default: by file name")
    source.add_argument(
        "-0", "--null", action="store_true", help="items end with NUL, as find -print0"
    )
    source.add_argument(
        "--title", dest="template", metavar="TEXT", help="the titles: {} is the item (default {})"
    )
    parser.add_argument("--batch", metavar="NAME", help="the batch to add to, made if new")
    parser.add_argument("--key", help="add it only if the batch has no task of this key")
    parser.add_argument(
        "--exclusive",
        action="append",
        metavar="KEY",
        help="never run beside another task with this key",
    )
    parser.add_argument(
        "--inbox", action="store_true", help="only capture it; `hv update --accept`"
    )
    parser.add_argument("--dry-run", action="store_true", help="show what would be added")
    arguments.add_task_fields(parser, changing=False)


def prepare(args: argparse.Namespace) -> int | None:
    """Read and check everything; a rehearsal ends here, without a store."""
    if args.batch is not None:
        validate.label("the batch's name", args.batch)
    args.tasks = _tasks(args)
    return _preview(args.tasks, args) if args.dry_run else None


def run(hv: Context, args: argparse.Namespace) -> int:
    added = add(hv, _delayed(_placed(hv, args), args, hv.now()), args.batch)
    many = args.source or args.glob or not added.ids
    respond(args, added, f"{len(added.ids)} added" if many else added.ids)
    if added.duplicates and not args.json:
        first = added.duplicates[0]
        print(
            f"{len(added.duplicates)} already there, e.g. {one_line(first.key)} "
            f"({first.task}, {first.state})",
            file=sys.stderr,
        )
    return 0


def _placed(hv: Context, args: argparse.Namespace) -> list[NewTask]:
    """Tasks that name no branch get that of the task or the git branch we work on."""
    branch = "" if args.branch else branch_here(hv, os.getcwd(), os.environ.get("HV_TASK", ""))
    tasks: list[NewTask] = args.tasks
    return [t if t.branch else t._replace(branch=branch) for t in tasks] if branch else tasks


def _delayed(tasks: list[NewTask], args: argparse.Namespace, now: int) -> list[NewTask]:
    """`--in` counts from the store's clock, for every task that names no time itself."""
    start_at = arguments.start_time(args, now)
    return [t._replace(start_at=start_at) if t.start_at is None else t for t in tasks]


def _tasks(args: argparse.Namespace) -> list[NewTask]:
    given = [args.title is not None, args.source is not None, args.glob is not None]
    if not any(given) and args.template is not None:
        raise InvalidInput(
            "--title is for tasks of --from or --glob; of one task, give the title by itself: "
            "`hv add TITLE`."
        )
    if sum(given) != 1:
        raise InvalidInput("give a TITLE, or --from FILE, or --glob PATTERN (one of them).")
    if args.key is not None and args.title is None:
        raise InvalidInput("--key is for one task; of many, each line, path or row has its own.")
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
        raise InvalidInput("--data must be a JSON object where many tasks are added.")
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
