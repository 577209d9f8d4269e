"""hv stats"""

import argparse
from collections.abc import Iterator

from hypervisor.cli.commands.batches import print_batches
from hypervisor.cli.output import colour, cut, one_line, respond, width
from hypervisor.cli.parser import hint_new_name
from hypervisor.core.text import pluralize
from hypervisor.queue.context import Context
from hypervisor.queue.lifecycle import state_name
from hypervisor.queue.queries import stats
from hypervisor.queue.task import Stats

EXAMPLE = "hv stats --batch review"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--batch", metavar="NAME", help="only tasks of this batch")
    for old in ("--batches", "--names"):
        parser.add_argument(old, action="store_true", help=argparse.SUPPRESS)


def run(hv: Context, args: argparse.Namespace) -> int:
    if args.names or args.batches:
        hint_new_name("hv stats --batches", "`hv batches`")
        return print_batches(hv, args)
    counts = stats(hv, args.batch)
    return respond(args, counts, stats_lines(counts))


def stats_lines(counts: Stats) -> Iterator[str]:
    tasks = pluralize(counts.total, "task")
    yield f"{tasks}, {counts.remaining} remaining, {counts.claimed} claimed"
    for state, count in counts.states.items():
        if count:
            yield colour(f"  {state_name(state):<12}{count:>8}", state)
    minutes, seconds = divmod(counts.window_seconds, 60)
    window = f"{minutes} min" if minutes else f"{seconds} s"
    yield (
        f"last {window}: {counts.completed_per_minute:.1f} done and "
        f"{counts.failed_per_minute:.1f} failed per minute"
    )
    if len(counts.types) > 1:
        names = {type: cut(one_line(type), 40) for type in sorted(counts.types)}
        longest = max(map(width, names.values()))
        for type, name in names.items():
            states = counts.types[type]
            done = f"{states.get('done', 0)} of {sum(states.values())} done"
            yield f"  {name}{' ' * (longest - width(name))}  {done}"
