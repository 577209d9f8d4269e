"""hv undo"""

import argparse
from collections.abc import Sequence

from hypervisor.batches.plans.undo import Undone, undo
from hypervisor.batches.plans.work import Outcome
from hypervisor.cli.commands.apply import confirmed, print_problem, require_answer
from hypervisor.cli.output import one_line, respond
from hypervisor.core.errors import EXIT_OK, EXIT_UNSUCCESSFUL
from hypervisor.core.text import pluralize
from hypervisor.queue.context import Context

EXAMPLE = """hv undo review --dry-run
  hv undo review"""

FEW = 20


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("batch", metavar="BATCH", help="a batch, by name or id")
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    parser.add_argument("-n", "--dry-run", action="store_true", help="show what would change")


def prepare(args: argparse.Namespace) -> None:
    require_answer(args, "undo the changes")


def run(hv: Context, args: argparse.Namespace) -> int:
    if args.dry_run:
        return _report(undo(hv, args.batch, dry_run=True), args)
    if not args.yes:
        preview = undo(hv, args.batch, dry_run=True)
        _show(preview)
        if (preview.undone or preview.refused or preview.dropped) and not confirmed("Undo this?"):
            print("Nothing was changed.")
            return EXIT_OK
    return _report(undo(hv, args.batch, False, None if args.json else print_problem), args)


def _show(preview: Undone) -> None:
    _list(preview.undone, "to undo")
    _list(preview.refused, "changed since, will be left alone")
    if preview.dropped:
        print(f"{pluralize(preview.dropped, 'approved action')} will no longer be carried out")


def _list(outcomes: Sequence[Outcome], heading: str) -> None:
    if outcomes:
        print(f"{pluralize(len(outcomes), 'action')} {heading}:")
    for outcome in outcomes[:FEW]:
        problem = f": {outcome.problem}" if outcome.problem else ""
        print(f"  #{outcome.number} {one_line(outcome.what + problem)}")
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
