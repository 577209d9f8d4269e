"""hv update"""

import argparse

from hypervisor.cli import arguments
from hypervisor.cli.output import confirm
from hypervisor.core.errors import InvalidInput
from hypervisor.queue.context import Context
from hypervisor.queue.lifecycle import next_state, state_name
from hypervisor.queue.queries import show
from hypervisor.queue.steer import accept, update
from hypervisor.queue.task import Changes

EXAMPLE = """hv update 1q12deyb --priority high --after 1q12ddxa
  hv update 1q12deyb --accept"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", metavar="TASK", help="id of the task, or a unique part of it")
    parser.add_argument("--title", metavar="TEXT", help="title of the task")
    parser.add_argument("--accept", action="store_true", help="take it out of the inbox")
    arguments.add_task_fields(parser, changing=True)


def prepare(args: argparse.Namespace) -> None:
    given = (getattr(args, name, None) for name in (*Changes._fields, "at", "delay"))
    if not args.accept and all(value is None for value in given):
        raise InvalidInput(
            "no changes given, as in `hv update TASK --priority high`. See `hv update --help`."
        )


def run(hv: Context, args: argparse.Namespace) -> int:
    changes = Changes(
        title=args.title,
        body=arguments.body(args.body),
        type=args.type,
        priority=args.priority,
        branch=args.branch,
        assignee=args.assignee,
        requires=None if args.requires is None else tuple(filter(None, args.requires)),
        after=None if args.after is None else tuple(filter(None, args.after)),
        start_at=arguments.start_time(args.at, args.delay, hv.now()),
        retries=args.retries,
        data=args.data,
    )
    moved = None
    if args.accept:  # the changes must not be kept if it cannot be accepted
        task = show(hv, args.task).detail.task
        next_state(task.state, "accept", task.id)
    if any(value is not None for value in changes) or not args.accept:
        moved = update(hv, args.task, changes)
    if args.accept:
        moved = accept(hv, args.task)
    text = f"{moved.task} {state_name(moved.state)}" if moved else ()
    return confirm(args, moved, text)
