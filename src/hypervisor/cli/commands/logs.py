"""hv logs"""

import argparse
import sys
import time
from collections.abc import Iterator

from hypervisor.agents.running_status import Transcript, patch, read, still_runs, transcript
from hypervisor.agents.transcript import TranscriptLine
from hypervisor.cli import transcripts
from hypervisor.cli.escape import RESET, EscapeFilter
from hypervisor.cli.output import columns_here, one_line, print_json, respond, wants_colour
from hypervisor.core import validate
from hypervisor.core.errors import EXIT_OK, NotFound
from hypervisor.queue.context import Context
from hypervisor.queue.look import show

EXAMPLE = """hv logs 1q12deyb
  hv logs 1q12deyb --follow
  hv logs 1q12deyb --attempt 1 > first.log
  hv logs 1q12deyb --raw | jq -r .type"""
PAUSE = 0.1
WAITING = ("waiting", "active")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "task",
        metavar="TASK",
        help="its id, or the beginning of it; of an agent that claims by itself, its session's",
    )
    parser.add_argument("--follow", "-f", action="store_true", help="go on until the attempt ends")
    parser.add_argument("--attempt", type=int, metavar="N", help="this one (default: the last)")
    parser.add_argument(
        "--raw", action="store_true", help="an agent's own lines, as they were kept"
    )

    parser.add_argument(
        "--patch", action="store_true", help="instead, what it changed in its copy (--scratch)"
    )


def run(hv: Context, args: argparse.Namespace) -> int:
    if args.attempt is not None:
        validate.number("the attempt", args.attempt, 1, 2**31)
    if args.follow and args.attempt is None:
        _wait_for_start(hv, args.task)
    log = transcript(hv, args.task, args.attempt)
    if not log.attempt:
        raise NotFound(f"{log.task} has not run yet, so there is no output.")
    if args.patch:
        return _print_patch(hv, log, args)
    pieces = _follow(hv, log) if args.follow else _read(hv, log)
    if log.agent and not args.raw:
        _print_transcript(log, pieces, args)
    elif args.json:
        _print_json(log, pieces, args.follow)
    else:
        _print_raw(pieces)
    return EXIT_OK


def _print_patch(hv: Context, log: Transcript, args: argparse.Namespace) -> int:
    text = patch(hv, log)
    answer = {**_named(log), "patch": text.decode("utf-8", "replace")}
    return respond(args, answer, lambda: _print_raw(iter([text])))


def _print_raw(pieces: Iterator[bytes]) -> None:
    """As they are where a program reads them; harmless on a terminal."""
    if sys.stdout.isatty():
        _print_harmless(pieces)
        return
    for piece in pieces:
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()


def _print_transcript(log: Transcript, pieces: Iterator[bytes], args: argparse.Namespace) -> None:
    """The transcript for people; with --json the same as objects."""
    columns = columns_here() if sys.stdout.isatty() else None
    whole: list[TranscriptLine] = []
    for entries in transcripts.rendered(pieces, log.stream):
        if args.json and not args.follow:
            whole += entries
        elif args.json:
            print_json({**_named(log), "said": entries})
        else:
            sys.stdout.write(transcripts.text(entries, columns, wants_colour()))
        sys.stdout.flush()
    if args.json and not args.follow:
        print_json({**_named(log), "said": whole})


def _named(log: Transcript) -> dict[str, object]:
    return {"task": log.task, "attempt": log.attempt, "agent": log.agent}


def _read(hv: Context, log: Transcript) -> Iterator[bytes]:
    start = 0
    while piece := read(hv, log, start):
        yield piece
        start += len(piece)


def _follow(hv: Context, log: Transcript) -> Iterator[bytes]:
    """What there is, then what comes, until the attempt has ended."""
    start = 0
    while True:
        runs = still_runs(hv, log)
        try:
            piece = read(hv, log, start)
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


def _wait_for_start(hv: Context, task: str) -> None:
    """Until it has been claimed, unless it is over already, or is no task but a session."""
    announced = False
    while True:
        try:
            current = show(hv, task).detail.task
        except NotFound:
            return
        if current.state not in WAITING:
            return
        if not announced:
            announced = True
            why = f" ({one_line(current.reason)})" if current.reason else ""
            print(
                f"hv: {current.id} is {current.state}{why}; waiting for it to run", file=sys.stderr
            )
        time.sleep(PAUSE)


def _print_harmless(pieces: Iterator[bytes]) -> None:
    clean = EscapeFilter(wants_colour())
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


def _print_json(log: Transcript, pieces: Iterator[bytes], follow: bool) -> None:
    """One object with everything; while following, one for each piece."""
    start = 0
    for piece in pieces if follow else [b"".join(pieces)]:
        text = piece.decode("utf-8", "replace")
        print_json({"task": log.task, "attempt": log.attempt, "start": start, "text": text})
        sys.stdout.flush()
        start += len(piece)
