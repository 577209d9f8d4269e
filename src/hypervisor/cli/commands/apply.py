"""hv apply"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from hypervisor.batches.plans.action import UNFINISHED, PlanChanged
from hypervisor.batches.plans.apply import Applied, apply
from hypervisor.batches.plans.plan import Plan, plan
from hypervisor.batches.plans.work import Outcome
from hypervisor.cli.commands.plan import picture
from hypervisor.cli.output import one_line, print_json
from hypervisor.core.errors import EXIT_OK, EXIT_UNSUCCESSFUL, InvalidInput
from hypervisor.core.text import counted
from hypervisor.queue.context import Context

EXAMPLE = """hv apply review
  hv apply review --dry-run
  hv apply review --yes --fail-fast"""

MOST_ROUNDS = 5  # shown again so often if it changes each time


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("batch", metavar="BATCH", help="a batch, by name or id")
    parser.add_argument("--yes", action="store_true", help="approve the plan without being asked")
    parser.add_argument("--dry-run", action="store_true", help="show the plan, change nothing")
    parser.add_argument("--full", action="store_true", help="show every action and line of it")
    parser.add_argument("--fail-fast", action="store_true", help="stop at the first that fails")


def prepare(args: argparse.Namespace) -> None:
    refuse_unasked(args)


def run(hv: Context, args: argparse.Namespace) -> int:
    if args.dry_run:
        return _rehearse(plan(hv, args.batch), args)
    done = apply(hv, args.batch, None, args.fail_fast, tell=_teller(args))  # what was left
    for round in range(1, MOST_ROUNDS + 1):
        found = plan(hv, args.batch)
        if not found.to_do or (args.fail_fast and done.failed):
            break
        if not args.json:
            print("\n".join(picture(found, args.full)), flush=True)
        if not args.yes and not asked(f"Carry out {counted(len(found.to_do), 'action')}?"):
            print("Nothing was changed.")
            return _code(done)
        try:
            fresh = apply(hv, args.batch, found.hash, args.fail_fast, tell=_teller(args))
        except PlanChanged as error:
            if round == MOST_ROUNDS:
                raise
            print(f"hv: {one_line(str(error))}", file=sys.stderr)
            continue
        return _report(_both(done, fresh), found, args)
    return _report(done, found, args)


def refuse_unasked(args: argparse.Namespace) -> None:
    """Nobody is there to be asked: then the answer has to be given beforehand."""
    if not (args.yes or args.dry_run) and (args.json or not _is_watched()):
        raise InvalidInput("nobody can be asked here. --yes approves, --dry-run only shows.")


def asked(question: str) -> bool:
    """What a person at the terminal says; anything but yes is no."""
    print(f"{question} [y/N] ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def tell_problem(outcome: Outcome) -> None:
    if outcome.problem:
        what = f"{outcome.what}: {outcome.problem}"
        print(f"hv: #{outcome.number} {one_line(what)}", file=sys.stderr, flush=True)


def _is_watched() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _teller(args: argparse.Namespace) -> Callable[[Outcome], None] | None:
    return None if args.json else tell_problem


def _rehearse(found: Plan, args: argparse.Namespace) -> int:
    if args.json:
        print_json(found)
        return EXIT_OK
    left = sum(found.states.get(state, 0) for state in UNFINISHED)
    if left:
        print(f"{counted(left, 'action')} approved before would be carried out first.")
    print("\n".join(picture(found, args.full)))
    print("\n(dry run: nothing was changed)")
    return EXIT_OK


def _both(one: Applied, other: Applied) -> Applied:
    return Applied(
        other.batch,
        one.resumed,
        one.applied + other.applied,
        one.failed + other.failed,
        one.dropped + other.dropped,
        other.left,
    )


def _report(done: Applied, found: Plan, args: argparse.Namespace) -> int:
    if args.json:
        print_json(done)
        return _code(done)
    if not (done.resumed or done.applied or done.failed or done.dropped):
        before = found.states.get("applied", 0)
        what = f"all {counted(before, 'action')} are applied" if before else "nothing is proposed"
        refused = f", {len(found.refused)} refused" if found.refused else ""
        print(f"nothing to do: {what}{refused}")
        return EXIT_OK
    parts = [f"{counted(done.applied, 'action')} applied"]
    more = {
        "failed": len(done.failed),
        "dropped": len(done.dropped),
        "still to do": done.left,
        "left from before": done.resumed,
    }
    parts += [f"{count} {word}" for word, count in more.items() if count]
    print(f"{', '.join(parts)}. `hv undo {one_line(done.batch)}` takes it back.")
    return _code(done)


def _code(done: Applied) -> int:
    return EXIT_UNSUCCESSFUL if done.failed else EXIT_OK
