"""hv ls"""

import argparse
import sys
from collections.abc import Sequence

from hypervisor.cli.output import respond, table, warn
from hypervisor.queue.context import Context
from hypervisor.queue.message import question_of, shown_state
from hypervisor.queue.queries import list_tasks
from hypervisor.queue.task import Task

EXAMPLE = "hv ls --state failed --state blocked --batch review"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--state",
        action="append",
        default=[],
        metavar="STATE",
        help="only tasks in this state; repeatable",
    )
    parser.add_argument("--batch", metavar="NAME", help="only tasks of this batch")
    parser.add_argument("--type", help="only tasks of this type")
    parser.add_argument("--branch", help="only tasks of this branch")
    parser.add_argument(
        "--priority",
        choices=("critical", "high", "medium", "low"),
        help="only tasks of this priority",
    )
    parser.add_argument("--assignee", help="only tasks assigned to this name")
    parser.add_argument("--text", help="only tasks with this text in title, key or id")
    parser.add_argument(
        "--limit", type=int, default=50, metavar="N", help="maximum number of tasks (default 50)"
    )
    parser.add_argument("--before", metavar="ID", help="only tasks before this id, for paging")
    parser.add_argument("--archived", action="store_true", help="also tasks of archived batches")
    parser.add_argument("--ids", action="store_true", help="print only the ids")


def run(hv: Context, args: argparse.Namespace) -> int:
    tasks = list_tasks(
        hv,
        args.state,
        args.batch,
        type=args.type,
        branch=args.branch,
        priority=args.priority,
        assignee=args.assignee,
        text=args.text,
        limit=args.limit,
        before=args.before,
        archived=args.archived,
    )
    if sys.stderr.isatty() and not args.json:
        _note(tasks, args.limit)
    if args.ids or not tasks:
        return respond(args, tasks, [task.id for task in tasks], hv=hv)
    reasons = [question_of(t) or t.reason for t in tasks]
    titles = [
        f"{t.title} ({why})" if why else t.title for t, why in zip(tasks, reasons, strict=True)
    ]
    rows = [
        (t.id, shown_state(t), t.priority, t.type, title)
        for t, title in zip(tasks, titles, strict=True)
    ]
    head = ("ID", "STATE", "PRIORITY", "TYPE", "TITLE")
    return respond(args, tasks, lambda: table(head, rows, [t.state for t in tasks]), hv=hv)


def _note(tasks: Sequence[Task], limit: int) -> None:
    """Tell a person that the list is empty or may be cut."""
    if not tasks:
        warn("no tasks")
    elif len(tasks) == limit:
        warn(f"the newest {limit}; for older ones: hv ls --before {tasks[-1].id}")
