"""hv plan"""

import argparse
from collections.abc import Iterator, Sequence

from hypervisor.batches.plans.action import SETTLED
from hypervisor.batches.plans.plan import Plan, PlannedAction, plan
from hypervisor.cli.output import one_line, render, respond, wants_colour
from hypervisor.core.text import pluralize
from hypervisor.queue.context import Context

EXAMPLE = """hv plan review
  hv plan review --full | less
  hv plan review --chunk 2"""

FEW_ACTIONS, FEW_LINES = 20, 12
STYLES = {"+": "green", "-": "red", "@": "cyan"}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("batch", metavar="BATCH", help="a batch, by name or id")
    parser.add_argument(
        "--chunk", type=int, metavar="N", help="what this chunk would change if it were approved"
    )
    parser.add_argument("--full", action="store_true", help="show all actions and full diffs")


def run(hv: Context, args: argparse.Namespace) -> int:
    proposed = plan(hv, args.batch, chunk=args.chunk)
    return respond(args, proposed, describe(proposed, args.full))


def describe(proposed: Plan, full: bool) -> Iterator[str]:
    """The plan as text: counts, the actions with their diffs, and the refused ones."""
    yield from _counts(proposed)
    yield from _actions(proposed.to_do, full)
    if proposed.refused:
        yield ""
        yield f"refused ({len(proposed.refused)}):"
        shown = proposed.refused if full else proposed.refused[:FEW_ACTIONS]
        for action in shown:
            yield f"  {action.task}  {one_line(action.what)}: {one_line(action.refused)}"
        yield from _more(len(proposed.refused) - len(shown))


def _counts(proposed: Plan) -> Iterator[str]:
    kinds = ", ".join(f"{count} {kind}" for kind, count in proposed.kinds.items())
    todo = pluralize(len(proposed.to_do), "action")
    where = f", chunk {proposed.chunk}" if proposed.chunk is not None else ""
    yield f"{one_line(proposed.batch)}{where}: {todo} to do" + (f" ({kinds})" if kinds else "")
    if proposed.to_do:
        categories = (f"{one_line(name)} {count}" for name, count in proposed.categories.items())
        yield f"  by category: {', '.join(categories)}"
        yield f"  in {one_line(proposed.root)}" if proposed.root else "  in the store"
    if proposed.unchanged:
        yield f"  {len(proposed.unchanged)} proposed, but would change nothing"
    before = ", ".join(f"{n} {state}" for state, n in proposed.states.items() if state in SETTLED)
    if before:
        yield f"  approved earlier: {before}"
    if proposed.ready:
        yield f"  on top of {pluralize(proposed.ready, 'action')} of approved chunks"
    for state, count in proposed.held_back.items():
        why = "were rejected" if state == "rejected" else "have no decision yet"
        yield f"  left out: {pluralize(count, 'task')} in chunks that {why}"


def _actions(actions: Sequence[PlannedAction], full: bool) -> Iterator[str]:
    shown = actions if full else actions[:FEW_ACTIONS]
    for number, action in enumerate(shown, 1):
        yield ""
        why = f"  ({one_line(action.why)})" if action.why else ""
        yield f"{number}. {one_line(action.what)}{why}"
        lines = action.diff.splitlines() if action.diff else []
        some = lines if full else lines[:FEW_LINES]
        yield from (f"     {_line(line)}" for line in some)
        yield from _more(len(lines) - len(some), "lines")
    yield from _more(len(actions) - len(shown))


def _line(text: str) -> str:
    safe, style = one_line(text), STYLES.get(text[:1], "")
    return render([(safe, style)], colours=True) if wants_colour() else safe


def _more(count: int, what: str = "") -> Iterator[str]:
    if count > 0:
        yield f"     … {count} more{f' {what}' if what else ''} (--full shows all)"
