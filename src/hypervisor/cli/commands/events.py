"""hv events"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence

from hypervisor.cli import arguments
from hypervisor.cli.json_form import named
from hypervisor.cli.output import clock, one_line, print_json
from hypervisor.core import times, validate
from hypervisor.core.errors import EXIT_OK
from hypervisor.queue.context import Context, batch_id
from hypervisor.queue.event import Event
from hypervisor.queue.lifecycle import state_name
from hypervisor.queue.queries import events, last_events, number_before

EXAMPLE = """hv events --last 20 --batch pages
  hv events --since 17:00
  hv events --since 120 --follow --json"""
PAUSE = 0.1
PAGE = 1_000


def configure(parser: argparse.ArgumentParser) -> None:
    start = parser.add_mutually_exclusive_group()
    start.add_argument(
        "--since",
        type=_start,
        default=0,
        metavar="N|TIME",
        help="only events after this number or time: 17:00, 2027-01-31T09:00 or 2h (ago)",
    )
    start.add_argument("-n", "--last", type=int, metavar="N", help="only the last N events")
    parser.add_argument(
        "--limit", type=int, default=None, metavar="N", help="maximum number of events"
    )
    parser.add_argument(
        "-f", "--follow", action="store_true", help="keep printing new events until Ctrl-C"
    )
    parser.add_argument("--task", metavar="TASK", help="only events of this task")
    parser.add_argument("--batch", metavar="BATCH", help="only events of this batch and its tasks")


def run(hv: Context, args: argparse.Namespace) -> int:
    if args.limit is not None:
        validate.number("the limit", args.limit, 1, 2**62)
    wanted = _filter(hv, args)
    last, left = _first(hv, args.since), args.limit
    if args.last is not None:
        shown, last = last_events(hv, args.last, wanted)
        _print_all(hv, shown[:left], args.json)
        sys.stdout.flush()
        left = None if left is None else left - len(shown)
        if not args.follow:
            return EXIT_OK
    _print_from(hv, last, left, wanted, args)
    return EXIT_OK


@arguments.checked
def _start(text: str) -> int | str:
    """A number, or a time, evaluated once the current time is known."""
    if text.removeprefix("-").isdecimal():
        return int(text)
    times.past_moment(text, now=0)
    return text


def _first(hv: Context, since: int | str) -> int:
    """The number above which events are shown."""
    if isinstance(since, int):
        return since
    return number_before(hv, times.past_moment(since, hv.now()))


def _filter(hv: Context, args: argparse.Namespace) -> Callable[[Event], bool]:
    task = None if args.task is None else hv.resolve(args.task)
    batch = batch_id(hv, args.batch)
    return lambda event: task in (None, event.task) and batch in (None, event.batch)


def _print_from(
    hv: Context,
    last: int,
    left: int | None,
    wanted: Callable[[Event], bool],
    args: argparse.Namespace,
) -> None:
    while left is None or left > 0:
        page = events(hv, last, PAGE)
        shown = list(filter(wanted, page))[:left]
        _print_all(hv, shown, args.json)
        if left is not None:
            left -= len(shown)
        if page:
            last = page[-1].seq
            sys.stdout.flush()
        elif args.follow:
            time.sleep(PAUSE)
        else:
            break


def _print_all(hv: Context, events: Sequence[Event], as_json: bool) -> None:
    for event in named(hv, events) if as_json else events:
        if as_json:
            print_json(event)
        else:
            _print(event)


def _print(event: Event) -> None:
    state = f" → {state_name(event.state)}" if event.state else ""
    data = " " + json.dumps(event.data, ensure_ascii=False) if event.data else ""
    attempt = f" #{event.attempt}" if event.attempt else ""
    who = f" {one_line(event.actor)}" if event.actor else ""
    subject = event.task or event.batch
    head = f"{event.seq}  {clock(event.at)}  {event.kind} {subject}"
    print(f"{head}{attempt}{state}{who}{one_line(data)}")
