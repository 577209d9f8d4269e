"""hv events"""

import argparse
import json
import sys
import time

from hypervisor.cli.output import clock, one_line, print_json
from hypervisor.core import validate
from hypervisor.core.errors import EXIT_OK
from hypervisor.queue.context import Context
from hypervisor.queue.event import Event
from hypervisor.queue.look import events

EXAMPLE = "hv events --since 120 --follow --json"
PAUSE = 0.1
PAGE = 1_000


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--since", type=int, default=0, metavar="N", help="only above this number")
    parser.add_argument("--limit", type=int, default=None, metavar="N", help="at most so many")
    parser.add_argument("--follow", action="store_true", help="go on as they happen, until Ctrl-C")
    parser.add_argument("--task", metavar="TASK", help="only this task's")


def run(hv: Context, args: argparse.Namespace) -> int:
    if args.limit is not None:
        validate.number("the limit", args.limit, 1, 2**62)
    task = None if args.task is None else hv.resolve(args.task)
    last, left = args.since, args.limit
    while left is None or left > 0:
        page = events(hv, last, PAGE)
        wanted = [event for event in page if task in (None, event.task)][:left]
        for event in wanted:
            _print(event, args.json)
        if left is not None:
            left -= len(wanted)
        if page:
            last = page[-1].seq
            sys.stdout.flush()
        elif args.follow:
            time.sleep(PAUSE)
        else:
            break
    return EXIT_OK


def _print(event: Event, as_json: bool) -> None:
    if as_json:
        print_json(event)
        return
    state = f" → {event.state}" if event.state else ""
    data = " " + json.dumps(event.data, ensure_ascii=False) if event.data else ""
    attempt = f" #{event.attempt}" if event.attempt else ""
    who = f" {one_line(event.actor)}" if event.actor else ""
    subject = event.task or event.batch
    head = f"{event.seq}  {clock(event.at)}  {event.kind} {subject}"
    print(f"{head}{attempt}{state}{who}{one_line(data)}")
