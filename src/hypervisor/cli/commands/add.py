"""hv add"""

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator

from hypervisor.cli import arguments
from hypervisor.cli.output import one_line, respond
from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput
from hypervisor.hive.branch import branch_here
from hypervisor.queue.add import SimilarTaskChecker, add_in_slices, check_task, joined
from hypervisor.queue.context import Context
from hypervisor.queue.lifecycle import state_name
from hypervisor.queue.task import Added, Duplicate, NewTask

EXAMPLE = """hv add "Fix the login page" --priority high
  find src -name '*.py' | hv add - --title 'Review {}' --batch review
  hv add --from tasks.jsonl --batch audit --dry-run"""

Reader = Callable[[], Iterator[NewTask]]


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
    args.read = _reader(args)
    if args.dry_run:
        return _preview(list(args.read()), args)
    # All are checked before one is added.
    args.together = max((bool(task.after) for task in args.read()), default=False)
    return None


def run(hv: Context, args: argparse.Namespace) -> int:
    tasks = _delayed(_placed(hv, args.read(), args), args, hv.now())
    checked = map(SimilarTaskChecker().check, tasks)  # again: they have a branch and a time now
    parts = add_in_slices(
        hv, checked, args.batch, retry_delay=args.retry_delay, together=args.together
    )
    return respond(args, joined(parts)) if args.json else _tell(args, parts)


def _tell(args: argparse.Namespace, parts: Iterable[Added]) -> int:
    """How many were added; of one task, its id. A million ids would be too many to keep."""
    count = already = 0
    ids: tuple[str, ...] = ()
    duplicate: Duplicate | None = None
    for part in parts:
        ids, count, already = part.ids, count + len(part.ids), already + len(part.duplicates)
        duplicate = duplicate or next(iter(part.duplicates), None)
    respond(args, None, ids if ids and args.title is not None else f"{count} added")
    if duplicate:
        print(
            f"{already} already in the batch, e.g. {one_line(duplicate.key)} "
            f"({duplicate.task}, {state_name(duplicate.state)})",
            file=sys.stderr,
        )
    return 0


def _placed(hv: Context, tasks: Iterable[NewTask], args: argparse.Namespace) -> Iterator[NewTask]:
    """The tasks with a default branch: that of the current task, else of the git branch."""
    branch = "" if args.branch else branch_here(hv, os.getcwd(), os.environ.get("HV_TASK", ""))
    return (t if t.branch or not branch else t._replace(branch=branch) for t in tasks)


def _delayed(tasks: Iterable[NewTask], args: argparse.Namespace, now: int) -> Iterator[NewTask]:
    """The tasks with the start time of --at or --in, by the store's clock, unless they have one."""
    start_at = arguments.start_time(args.at, args.delay, now)
    return (t._replace(start_at=start_at) if t.start_at is None else t for t in tasks)


def _reader(args: argparse.Namespace) -> Reader:
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
        task = check_task(base)
        return lambda: iter([task])
    if args.data is not None and not isinstance(args.data, dict):
        raise InvalidInput("--data must be a JSON object when adding many tasks.")
    return _many(args, base)


def _many(args: argparse.Namespace, base: NewTask) -> Reader:
    from hypervisor.inputs.read_twice import seekable
    from hypervisor.inputs.sources import glob_tasks, guess_format, read_tasks

    template = "{}" if args.template is None else args.template
    if args.glob is not None:
        return lambda: glob_tasks(args.glob, base, template)
    form = args.format or guess_format(args.source)
    try:
        opened = sys.stdin.buffer if args.source == "-" else open(args.source, "rb")  # noqa: SIM115
        file = seekable(opened)
        start = file.tell()
    except OSError as error:
        raise _unreadable(args, error) from None

    def read() -> Iterator[NewTask]:
        try:
            file.seek(start)
            yield from read_tasks(file, form, base, template, args.null)
        except OSError as error:
            raise _unreadable(args, error) from None

    return read


def _unreadable(args: argparse.Namespace, error: OSError) -> InvalidInput:
    return InvalidInput(f"{args.source} cannot be read: {error.strerror}. Nothing was added.")


def _preview(tasks: list[NewTask], args: argparse.Namespace) -> int:
    more = f", {len(tasks) - 10} of them not shown" if len(tasks) > 10 else ""
    count = f"{len(tasks)} would be added{more} (dry run: nothing was changed)"
    return respond(args, tasks, [*(one_line(task.title) for task in tasks[:10]), count])
