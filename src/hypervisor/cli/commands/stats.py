"""hv stats"""

from __future__ import annotations

import argparse

from hypervisor.cli.output import colour, cut, one_line, plain, print_json, table, width
from hypervisor.core.errors import EXIT_OK
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
        return _names(hv, args)
    if args.batches:
        return _batches(hv, args)
    counted = stats(hv, args.batch)
    if args.json:
        print_json(counted)
        return EXIT_OK
    tasks = pluralize(counted.total, "task")
    print(f"{tasks}, {counted.remaining} remaining, {counted.claimed} claimed")
    for state, count in counted.states.items():
        if count:
            print(colour(f"  {state:<12}{count:>8}", state))
    minutes = counted.window_seconds // 60
    print(
        f"last {minutes} min: {counted.completed_per_minute:.1f} done and "
        f"{counted.failed_per_minute:.1f} failed per minute"
    )
    if len(counted.types) > 1:
        names = {kind: cut(one_line(kind), 40) for kind in sorted(counted.types)}
        longest = max(map(width, names.values()))
        for kind, name in names.items():
            states = counted.types[kind]
            done = f"{states.get('done', 0)} of {sum(states.values())} done"
            print(f"  {name}{' ' * (longest - width(name))}  {done}")
    return EXIT_OK


def _names(hv: Context, args: argparse.Namespace) -> int:
    names = [batch.name for batch in batches(hv)]
    if args.json:
        print_json(names)
    else:
        for name in names:
            print(one_line(name))
    return EXIT_OK


def _batches(hv: Context, args: argparse.Namespace) -> int:
    found = [(batch, stats(hv, batch.id)) for batch in batches(hv)]
    if args.json:
        print_json([{**plain(batch), "stats": plain(counted)} for batch, counted in found])
        return EXIT_OK
    rows = [(batch.id, _progress(counted), batch.name) for batch, counted in found]
    table(HEAD, rows, widest=LONGEST_PROGRESS)
    return EXIT_OK


def _progress(counted: Stats) -> str:
    return f"{counted.states['done']} of {counted.total} done, {counted.remaining} left"
