"""hv logs"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator

from hypervisor.domain import checks
from hypervisor.domain.errors import EXIT_OK, NotFound
from hypervisor.domain.lifecycle import IN_PROGRESS
from hypervisor.faces.cli.harmless import RESET, Harmless
from hypervisor.faces.cli.output import one_line, print_json, wants_colour
from hypervisor.operations.context import Context
from hypervisor.operations.look import show
from hypervisor.operations.run import latest_output, output

EXAMPLE = """hv logs 1q12deyb
  hv logs 1q12deyb --follow
  hv logs 1q12deyb --attempt 1 > first.log"""
PAUSE = 0.1
WAITING = ("waiting", "active")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", metavar="TASK", help="its id, or the beginning of it")
    parser.add_argument("--follow", "-f", action="store_true", help="go on until the attempt ends")
    parser.add_argument("--attempt", type=int, metavar="N", help="this one (default: the last)")


def run(hv: Context, args: argparse.Namespace) -> int:
    if args.attempt is not None:
        checks.number("the attempt", args.attempt, 1, 2**31)
    task = hv.resolve(args.task)
    if args.follow and args.attempt is None:
        _wait_for_start(hv, task)
    number = args.attempt or latest_output(hv, task)
    if not number:
        raise NotFound(f"{task} has not run yet, so there is no output.")
    pieces = _follow(hv, task, number) if args.follow else _read(hv, task, number)
    if args.json:
        _print_json(task, number, pieces, args.follow)
    elif sys.stdout.isatty():
        _print_harmless(pieces)
    else:
        for piece in pieces:
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
    return EXIT_OK


def _read(hv: Context, task: str, number: int) -> Iterator[bytes]:
    start = 0
    while piece := output(hv, task, number, start):
        yield piece
        start += len(piece)


def _follow(hv: Context, task: str, number: int) -> Iterator[bytes]:
    """What there is, then what comes, until the attempt has ended."""
    start = 0
    while True:
        runs = _runs(hv, task, number)
        try:
            piece = output(hv, task, number, start)
        except NotFound:
            if not runs:
                raise
            piece = b""
        if piece:
            yield piece
            start += len(piece)
        elif not runs:
            return
        else:
            time.sleep(PAUSE)


def _runs(hv: Context, task: str, number: int) -> bool:
    found = show(hv, task).detail.task
    return found.state == IN_PROGRESS and found.attempts == number


def _wait_for_start(hv: Context, task: str) -> None:
    """Until it has been claimed, unless it is over already."""
    told = False
    while True:
        found = show(hv, task).detail.task
        if found.state not in WAITING:
            return
        if not told:
            told = True
            why = f" ({one_line(found.reason)})" if found.reason else ""
            print(f"hv: {found.id} is {found.state}{why}; waiting for it to run", file=sys.stderr)
        time.sleep(PAUSE)


def _print_harmless(pieces: Iterator[bytes]) -> None:
    clean = Harmless(wants_colour())
    at_start = True
    try:
        for piece in pieces:
            text = clean.feed(piece)
            sys.stdout.write(text)
            sys.stdout.flush()
            at_start = text.endswith("\n") if text else at_start
        text = clean.feed(b"", last=True)
        sys.stdout.write(text)
        at_start = text.endswith("\n") if text else at_start
    finally:
        sys.stdout.write((RESET if clean.coloured else "") + ("" if at_start else "\n"))


def _print_json(task: str, number: int, pieces: Iterator[bytes], follow: bool) -> None:
    """One object with everything; while following, one for each piece."""
    start = 0
    for piece in pieces if follow else [b"".join(pieces)]:
        text = piece.decode("utf-8", "replace")
        print_json({"task": task, "attempt": number, "start": start, "text": text})
        sys.stdout.flush()
        start += len(piece)
