"""Tasks selected by id or by a filter, for `retry`, `cancel` and `kill`."""

import argparse
import sys
from collections.abc import Callable, Sequence

from hypervisor.cli.latest import exact_batch, no_task_or_batch
from hypervisor.cli.output import confirm, one_line, respond
from hypervisor.core.errors import (
    EXIT_CODES,
    EXIT_OK,
    AmbiguousId,
    InvalidInput,
    NotFound,
)
from hypervisor.core.text import pluralize
from hypervisor.queue.bulk import change, counted, oldest_first
from hypervisor.queue.context import Context
from hypervisor.queue.lifecycle import state_name
from hypervisor.queue.steer import Moved

SHORT = 4  # characters
NOTHING = "no tasks match; nothing was changed"


def configure(parser: argparse.ArgumentParser, states: tuple[str, ...]) -> None:
    """`states`: the default of --state."""
    parser.add_argument(
        "task", nargs="*", metavar="TASK|BATCH", help="ids of tasks, or the name of a batch"
    )
    parser.add_argument(
        "--state",
        action="append",
        default=[],
        metavar="STATE",
        help=f"all tasks in this state (default: {', '.join(map(state_name, states))})",
    )
    parser.add_argument("--batch", metavar="NAME", help="all tasks of this batch")
    parser.add_argument("--type", help="all tasks of this type")
    parser.add_argument("--all", action="store_true", help="all tasks")
    parser.add_argument("--reason", default="", metavar="TEXT", help="why, for the log")
    parser.add_argument(
        "-n", "--dry-run", action="store_true", help="list the tasks without changing them"
    )


def run(
    hv: Context,
    args: argparse.Namespace,
    act: Callable[..., Moved],
    states: tuple[str, ...],
    *,
    then: Callable[[Context, Sequence[Moved]], list[str]] = lambda hv, moved: [],
    skip: str = "",
) -> int:
    """`then` is called with the tasks that were changed, and returns more lines for people. Tasks
    of a filter that are refused with the code `skip` are left out."""
    chosen = choose(hv, args, states)
    if args.dry_run:
        return dry_run(chosen, args)
    answers: list[Moved | dict[str, object]] = []
    code = EXIT_OK
    for answer in change(hv, chosen, act, args.reason):
        if isinstance(answer, Moved):
            answers.append(answer)
            continue
        error = answer.error
        if error.code == skip and not args.task:
            continue
        code = code or EXIT_CODES[error.code]
        if args.json:
            shown = {"code": error.code, "message": str(error)}
            answers.append({"task": answer.task, "error": shown})
        print(f"hv: {one_line(str(error))}", file=sys.stderr)
    moved = [answer for answer in answers if isinstance(answer, Moved)]
    lines = [*([counted(moved)] if moved else []), *then(hv, moved)]
    return confirm(args, answers, lines or ([] if code else [NOTHING]), code)


def dry_run(chosen: Sequence[str], args: argparse.Namespace) -> int:
    """Which tasks would be changed."""
    tasks = pluralize(len(chosen), "task")
    return respond(args, chosen, [*chosen, f"{tasks} (dry run: nothing was changed)"])


def choose(hv: Context, args: argparse.Namespace, states: tuple[str, ...]) -> list[str]:
    """The ids of the selected tasks; `states`: the default of a filter without --state."""
    take_batch(hv, args)
    by_filter = args.state or args.batch or args.type or args.all
    if args.task and by_filter:
        raise InvalidInput("give either ids or --state, --batch, --type and --all, not both.")
    if not args.task and not by_filter:
        raise InvalidInput(
            "no tasks selected: give ids or a batch, or use --state, --batch, --type or --all."
        )
    if args.task:
        # Only a dry run looks them up first: in a real run, one bad id must not stop the rest.
        ids = map(hv.resolve, args.task) if args.dry_run else args.task
        return list(dict.fromkeys(ids))
    return oldest_first(hv, args.state or states, args.batch, args.type)


def take_batch(hv: Context, args: argparse.Namespace) -> None:
    """A single word that means a batch, and no task, is the same as --batch."""
    if len(args.task) != 1 or args.batch is not None:
        return
    (word,) = args.task
    is_batch = exact_batch(hv, word) is not None
    try:
        hv.resolve(word)
    except (InvalidInput, NotFound):
        if not is_batch and len(word) <= SHORT:
            raise  # it says how much of an id is needed
        if not is_batch:
            raise no_task_or_batch(word) from None
        args.task, args.batch = [], word
        return
    except AmbiguousId:
        if not is_batch:
            raise
    if not is_batch:
        return
    raise AmbiguousId(
        f"{word!r} is a batch and also part of the id of a task. "
        "Use --batch for the batch, or type more of the id."
    )
