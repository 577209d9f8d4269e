"""hv stats"""

import argparse
from collections.abc import Iterator

from hypervisor.cli.output import colour, cut, one_line, plain, respond, table, width
from hypervisor.core.text import pluralize
from hypervisor.queue.context import Context
from hypervisor.queue.look import batches, stats
from hypervisor.queue.task import Stats

EXAMPLE = "hv stats --batch review"
HEAD = ("ID", "PROGRESS", "BATCH")
LONGEST_PROGRESS = 60


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--batch", metavar="NAME", help="only tasks of this batch")
    parser.add_argument("--batches", action="store_true", help="each batch, newest first")
    parser.add_argument("--names", action="store_true", help="only the names of the batches")


def run(hv: Context, args: argparse.Namespace) -> int:
    if args.names:
        names = [batch.name for batch in batches(hv)]
        return respond(args, names, map(one_line, names))
    if args.batches:
        return _batches(hv, args)
    counts = stats(hv, args.batch)
    return respond(args, counts, _lines(counts))


def _lines(counts: Stats) -> Iterator[str]:
    tasks = pluralize(counts.total, "task")
    yield f"{tasks}, {counts.remaining} remaining, {counts.claimed} claimed"
    for state, count in counts.states.items():
        if count:
            yield colour(f"  {state:<12}{count:>8}", state)
    yield (
        f"last {counts.window_seconds // 60} min: {counts.completed_per_minute:.1f} done and "
        f"{counts.failed_per_minute:.1f} failed per minute"
    )
    if len(counts.types) > 1:
        names = {type: cut(one_line(type), 40) for type in sorted(counts.types)}
        longest = max(map(width, names.values()))
        for type, name in names.items():
            states = counts.types[type]
            done = f"{states.get('done', 0)} of {sum(states.values())} done"
            yield f"  {name}{' ' * (longest - width(name))}  {done}"


def _batches(hv: Context, args: argparse.Namespace) -> int:
    pairs = [(batch, stats(hv, batch.id)) for batch in batches(hv)]
    answer = [{**plain(batch), "stats": plain(counts)} for batch, counts in pairs]
    rows = [
        (batch.id, f"{c.states['done']} of {c.total} done, {c.remaining} left", batch.name)
        for batch, c in pairs
    ]
    return respond(args, answer, lambda: table(HEAD, rows, widest=LONGEST_PROGRESS))
