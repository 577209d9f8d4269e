"""hv undo"""

import argparse
from collections.abc import Sequence

from hypervisor.batches.plans.undo import Undone, undo
from hypervisor.batches.plans.work import Outcome
from hypervisor.cli.commands.apply import confirmed, print_problem
from hypervisor.cli.commands.apply import prepare as prepare
from hypervisor.cli.output import one_line, respond
from hypervisor.core.errors import EXIT_OK, EXIT_UNSUCCESSFUL
from hypervisor.core.text import pluralize
from hypervisor.queue.context import Context

EXAMPLE = """hv undo review --dry-run
  hv undo review"""

FEW = 20


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("batch", metavar="BATCH", help="a batch, by name or id")
    parser.add_argument("--yes", action="store_true", help="do it without being asked")
    parser.add_argument("--dry-run", action="store_true", help="show what, change nothing")


def run(hv: Context, args: argparse.Namespace) -> int:
    if args.dry_run:
        return _report(undo(hv, args.batch, dry_run=True), args)
    if not args.yes:
        would = undo(hv, args.batch, dry_run=True)
        _show(would)
        if (would.undone or would.refused or would.dropped) and not confirmed("Undo this?"):
            print("Nothing was changed.")
            return EXIT_OK
    return _report(undo(hv, args.batch, False, None if args.json else print_problem), args)


def _show(would: Undone) -> None:
    _list(would.undone, "to be undone")
    _list(would.refused, "changed since, to be left alone")
    if would.dropped:
        print(f"{pluralize(would.dropped, 'action')} approved, not to be carried out any more")


def _list(outcomes: Sequence[Outcome], what: str) -> None:
    if outcomes:
        print(f"{pluralize(len(outcomes), 'action')} {what}:")
    for each in outcomes[:FEW]:
        problem = f": {each.problem}" if each.problem else ""
        print(f"  #{each.number} {one_line(each.what + problem)}")
    if len(outcomes) > FEW:
        print(f"  … {len(outcomes) - FEW} more")


def _report(done: Undone, args: argparse.Namespace) -> int:
    parts = [f"{pluralize(len(done.undone), 'action')} undone"]
    parts += [f"{len(done.refused)} left alone"] if done.refused else []
    parts += [f"{done.dropped} dropped"] if done.dropped else []
    text = ", ".join(parts) if any((done.undone, done.refused, done.dropped)) else "nothing to undo"
    if args.dry_run and not args.json:
        _show(done)
        text = "(dry run: nothing was changed)"
    return respond(args, done, text, EXIT_UNSUCCESSFUL if done.refused else EXIT_OK)
