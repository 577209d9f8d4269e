"""hv apply"""

import argparse
import sys

from hypervisor.batches.plans.action import UNFINISHED, PlanChanged
from hypervisor.batches.plans.apply import Applied, apply
from hypervisor.batches.plans.plan import Plan, plan
from hypervisor.batches.plans.work import Outcome
from hypervisor.cli.commands.plan import describe
from hypervisor.cli.output import one_line, print_json
from hypervisor.core.errors import EXIT_OK, EXIT_UNSUCCESSFUL, InvalidInput
from hypervisor.core.text import pluralize
from hypervisor.queue.context import Context

EXAMPLE = """hv apply review
  hv apply review --dry-run
  hv apply review --yes --fail-fast"""

MAX_ROUNDS = 5  # how often the plan is shown again if it keeps changing


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("batch", metavar="BATCH", help="a batch, by name or id")
    parser.add_argument("--yes", action="store_true", help="approve the plan without asking")
    parser.add_argument(
        "-n", "--dry-run", action="store_true", help="show the plan without changing anything"
    )
    parser.add_argument("--full", action="store_true", help="show all actions and full diffs")
    parser.add_argument("--fail-fast", action="store_true", help="stop at the first failure")


def run(hv: Context, args: argparse.Namespace) -> int:
    if args.dry_run:
        return _rehearse(plan(hv, args.batch), args)
    on_problem = None if args.json else print_problem
    done = apply(hv, args.batch, None, args.fail_fast, tell=on_problem)  # approved earlier
    for round in range(1, MAX_ROUNDS + 1):
        proposed = plan(hv, args.batch)
        if not proposed.to_do or (args.fail_fast and done.failed):
            break
        if not args.json:
            print("\n".join(describe(proposed, args.full)), flush=True)
        if not args.yes and not confirmed(f"Carry out {pluralize(len(proposed.to_do), 'action')}?"):
            print("Nothing was changed.")
            return _code(done)
        try:
            fresh = apply(hv, args.batch, proposed.hash, args.fail_fast, tell=on_problem)
        except PlanChanged as error:
            if round == MAX_ROUNDS:
                raise
            print(f"hv: {one_line(str(error))}", file=sys.stderr)
            continue
        return _report(_sum(done, fresh), proposed, args)
    return _report(done, proposed, args)


def prepare(args: argparse.Namespace) -> None:
    require_answer(args, "approve")


def require_answer(args: argparse.Namespace, purpose: str) -> None:
    """Without a terminal, the answer must be given as an option."""
    watched = sys.stdin.isatty() and sys.stdout.isatty()
    if not (args.yes or args.dry_run) and (args.json or not watched):
        raise InvalidInput(f"not a terminal; use --yes to {purpose}, or --dry-run to look first.")


def confirmed(question: str) -> bool:
    """Ask at the terminal; anything but yes means no."""
    print(f"{question} [y/N] ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def print_problem(outcome: Outcome) -> None:
    if outcome.problem:
        what = f"{outcome.what}: {outcome.problem}"
        print(f"hv: #{outcome.number} {one_line(what)}", file=sys.stderr, flush=True)


def _rehearse(proposed: Plan, args: argparse.Namespace) -> int:
    if args.json:
        print_json(proposed)
        return EXIT_OK
    left = sum(proposed.states.get(state, 0) for state in UNFINISHED)
    if left:
        print(f"{pluralize(left, 'action')} approved earlier would be carried out first.")
    print("\n".join(describe(proposed, args.full)))
    print("\n(dry run: nothing was changed)")
    return EXIT_OK


def _sum(resumed: Applied, fresh: Applied) -> Applied:
    return Applied(
        fresh.batch,
        resumed.resumed,
        resumed.applied + fresh.applied,
        resumed.failed + fresh.failed,
        resumed.dropped + fresh.dropped,
        fresh.left,
    )


def _report(done: Applied, proposed: Plan, args: argparse.Namespace) -> int:
    if args.json:
        print_json(done)
        return _code(done)
    if not (done.resumed or done.applied or done.failed or done.dropped):
        before = proposed.states.get("applied", 0)
        why = "all actions are already applied" if before else "no changes are proposed"
        refused = f", {len(proposed.refused)} refused" if proposed.refused else ""
        print(f"nothing to do: {why}{refused}")
        return EXIT_OK
    parts = [f"{pluralize(done.applied, 'action')} applied"]
    more = {
        "failed": len(done.failed),
        "dropped": len(done.dropped),
        "still to do": done.left,
        "approved earlier": done.resumed,
    }
    parts += [f"{count} {word}" for word, count in more.items() if count]
    print(f"{', '.join(parts)}; to undo: hv undo {one_line(done.batch)}")
    return _code(done)


def _code(done: Applied) -> int:
    return EXIT_UNSUCCESSFUL if done.failed else EXIT_OK
