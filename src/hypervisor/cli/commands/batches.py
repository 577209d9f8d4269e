"""hv batches"""

import argparse
import shlex
import sys
from collections.abc import Callable

from hypervisor.batches.archive import archive_batch, unarchive_batch
from hypervisor.batches.delete import Deleted, delete_batch
from hypervisor.cli.arguments import add_word
from hypervisor.cli.commands.apply import confirmed, require_answer
from hypervisor.cli.json_form import plain
from hypervisor.cli.output import confirm, one_line, respond, table
from hypervisor.core.errors import (
    EXIT_CODES,
    EXIT_OK,
    EXIT_UNSUCCESSFUL,
    InvalidInput,
    RequestError,
)
from hypervisor.core.text import pluralize
from hypervisor.queue.context import Context
from hypervisor.queue.lifecycle import state_name
from hypervisor.queue.queries import batches, stats
from hypervisor.queue.task import Batch, Stats
from hypervisor.resources.limits import size_text

DESCRIPTION = (
    "List batches, newest first, with the states of their tasks and their age. "
    "An archived batch is kept but no longer listed or counted. Deleting a batch removes its "
    "tasks, attempts, outputs and files; its events, receipts and costs are kept."
)
EXAMPLE = """hv batches
  hv batches --limit 5 --json
  hv batches archive nightly
  hv batches --archived
  hv batches delete nightly --dry-run"""
WORDS = {
    "archive": "hide finished batches from lists and counts",
    "unarchive": "bring them back",
    "delete": "delete finished batches",
}
HEAD = ("ID", "AGE", "DONE", "OTHER TASKS", "BATCH")
MAX_STATES_LENGTH = 60
UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))


def configure(parser: argparse.ArgumentParser) -> None:
    add_word(parser, WORDS)
    parser.add_argument("batch", nargs="*", metavar="BATCH", help="batches, by name or id")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--all", action="store_true", help="list archived batches, too")
    which.add_argument("--archived", action="store_true", help="list only archived batches")
    parser.add_argument(
        "--limit", type=int, default=100, metavar="N", help="list at most N (default 100)"
    )
    parser.add_argument("--names", action="store_true", help="print only the names")
    parser.add_argument("--yes", action="store_true", help="delete: do not ask")
    parser.add_argument(
        "-n", "--dry-run", action="store_true", help="delete: show what would be deleted"
    )


def prepare(args: argparse.Namespace) -> None:
    if args.word and not args.batch:
        raise InvalidInput(f"no batch given: hv batches {args.word} BATCH")
    if args.batch and not args.word:
        raise InvalidInput("`hv batches list` takes no batch. `hv status BATCH` shows one.")
    if args.word != "delete":
        if args.yes or args.dry_run:
            raise InvalidInput("--yes and --dry-run work only with `hv batches delete`.")
        return
    require_answer(args, "delete")


def run(hv: Context, args: argparse.Namespace) -> int:
    if args.word == "archive":
        return _each(hv, args, archive_batch, "archived", "is archived already")
    if args.word == "unarchive":
        return _each(hv, args, unarchive_batch, "no longer archived", "is not archived")
    if args.word == "delete":
        return _delete(hv, args)
    archived = None if args.all else args.archived
    return print_batches(hv, args, args.limit, archived)


def print_batches(
    hv: Context, args: argparse.Namespace, limit: int = 100, archived: bool | None = False
) -> int:
    listed = batches(hv, limit, archived)
    if args.names:
        names = [batch.name for batch in listed]
        return respond(args, names, map(one_line, names))
    pairs = [(batch, stats(hv, batch.id)) for batch in listed]
    answer = [{**plain(batch), "stats": plain(counts)} for batch, counts in pairs]
    now = hv.now()
    rows = [
        (
            batch.id,
            age_text(now - batch.created_at),
            f"{counts.states['done']} of {counts.total}",
            other_states(counts),
            name_text(batch),
        )
        for batch, counts in pairs
    ]
    return respond(args, answer, lambda: table(HEAD, rows, widest=MAX_STATES_LENGTH))


def name_text(batch: Batch) -> str:
    """The name, with what is special about the batch."""
    if batch.deleting:
        return f"{batch.name} (deletion interrupted)"
    return f"{batch.name} (archived)" if batch.archived_at is not None else batch.name


def other_states(counts: Stats) -> str:
    """The number of tasks in each state but done."""
    return ", ".join(
        f"{count} {state_name(state)}"
        for state, count in counts.states.items()
        if count and state != "done"
    )


def age_text(ms: int) -> str:
    unit, size = next((unit for unit in UNITS if ms >= unit[1]), UNITS[-1])
    return f"{max(ms, 0) // size} {unit}"


def _each(
    hv: Context,
    args: argparse.Namespace,
    act: Callable[[Context, str], tuple[str, ...]],
    outcome: str,
    no_change: str,
) -> int:
    """Archive or unarchive batches; one that is refused does not stop the others."""
    changed: list[str] = []
    lines, code = [], EXIT_OK
    for batch in args.batch:
        try:
            names = act(hv, batch)
        except RequestError as error:
            code = code or EXIT_CODES[error.code]
            print(f"hv: {one_line(str(error))}", file=sys.stderr)
            continue
        changed += names
        lines += [f"{one_line(name)} {outcome}" for name in names]
        lines += [] if names else [f"{one_line(batch)} {no_change}"]
    return confirm(args, {"batches": changed}, lines, code)


def _delete(hv: Context, args: argparse.Namespace) -> int:
    would = [delete_batch(hv, batch, dry_run=True) for batch in args.batch]
    if args.dry_run:
        lines = [
            *(_text(each, "would be deleted") for each in would),
            "(dry run: nothing was changed)",
        ]
        return respond(args, would, lines)
    if not args.yes:
        print("\n".join(_text(each, "will be deleted") for each in would))
        names = ", ".join(one_line(name) for deleted in would for name in deleted.batches)
        if not confirmed(f"Delete {names}?"):
            print("Nothing was changed.")
            return EXIT_OK
    done: list[Deleted] = []
    for batch, planned in zip(args.batch, would, strict=True):
        if not any(set(planned.batches) <= set(deleted.batches) for deleted in done):
            done.append(delete_batch(hv, batch))  # unless it went with another one's pipeline
    left = sum(deleted.kept_outputs for deleted in done)
    if left:
        where = shlex.quote(hv.outputs.root)
        print(f"hv: {pluralize(left, 'output')} in {where} not deleted", file=sys.stderr)
    return confirm(args, done, map(_text, done), EXIT_UNSUCCESSFUL if left else EXIT_OK)


def _text(deleted: Deleted, outcome: str = "deleted") -> str:
    """What goes and what stays, in one line."""
    parts = [
        pluralize(deleted.tasks, "task"),
        pluralize(deleted.attempts, "attempt"),
        f"{pluralize(deleted.outputs, 'output')} ({size_text(deleted.bytes)})",
    ]
    kept = f"kept: the event log, {pluralize(deleted.kept_receipts, 'receipt')}"
    undo = f"; {pluralize(deleted.applied, 'change')} cannot be undone" if deleted.applied else ""
    names = ", ".join(map(one_line, deleted.batches))
    return f"{names}: {', '.join(parts)} {outcome}; {kept}{undo}"
