"""hv logs"""

import argparse
import sys
import time
from collections.abc import Iterator

from hypervisor.agents.running_status import (
    Transcript,
    patch,
    read,
    setup_output,
    still_runs,
    transcript,
)
from hypervisor.agents.transcript import TranscriptLine
from hypervisor.cli import batch_logs, transcripts
from hypervisor.cli.latest import exact_batch, named_or_latest, no_task_or_batch
from hypervisor.cli.output import columns_here, one_line, print_json, respond, wants_colour
from hypervisor.cli.outputs import write_output
from hypervisor.core import validate
from hypervisor.core.errors import EXIT_CODES, EXIT_OK, InvalidInput, NotFound
from hypervisor.queue.context import Context
from hypervisor.queue.lifecycle import state_name
from hypervisor.queue.queries import show
from hypervisor.runs import sql

DESCRIPTION = "Print the output of a task's last or an earlier attempt, or of a whole batch."
EXAMPLE = """hv logs pages --failed
  hv logs 1q12deyb
  hv logs 1q12deyb --follow
  hv logs 1q12deyb --attempt 1 > first.log
  hv logs 1q12deyb --raw | jq -r .type"""
PAUSE = 0.1
WAITING = ("waiting", "active")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target",
        nargs="?",
        metavar="TASK|BATCH",
        help="id of a task, name or id of a batch (default: the latest batch), or session id of "
        "an agent that claims tasks itself",
    )
    parser.add_argument("--failed", action="store_true", help="only failed tasks of a batch")
    parser.add_argument(
        "-f",
        "--follow",
        action="store_true",
        help="keep printing until the attempt or the batch has ended",
    )
    parser.add_argument(
        "--attempt", type=int, metavar="N", help="attempt number (default: the last)"
    )
    parser.add_argument(
        "--raw", action="store_true", help="print an agent's output as it was received"
    )
    parser.add_argument(
        "--setup",
        action="store_true",
        help="print the output of setting up the clone of a task (see [workspace] in hv config)",
    )
    parser.add_argument(
        "--patch",
        action="store_true",
        help="print the changes that an agent made in its copy (see hv run --scratch)",
    )


def run(hv: Context, args: argparse.Namespace) -> int:
    if args.attempt is not None:
        validate.number("the attempt", args.attempt, 1, 2**31)
    batch = _target_batch(hv, args.target)
    if batch is not None:
        return _print_batch(hv, batch, args)
    if args.failed:
        raise InvalidInput("--failed works only with a batch: hv logs BATCH --failed")
    if args.follow and args.attempt is None:
        _wait_for_start(hv, args.target)
    log = _log_of(hv, args.target, args.attempt)
    if not log.attempt:
        raise NotFound(f"{log.task} has not run yet and has no output.")
    if args.patch or args.setup:
        return _print_file(hv, log, args)
    pieces = _follow(hv, log) if args.follow else _read(hv, log)
    _print_log(log, pieces, args, follow=args.follow)
    return EXIT_OK


def _target_batch(hv: Context, target: str | None) -> str | None:
    """The id of the batch with that name or full id, or of the latest one; None for a task."""
    if target is None:
        return named_or_latest(hv, None)
    batch = exact_batch(hv, target)
    return batch.id if batch else None


def _log_of(hv: Context, target: str, attempt: int | None = None) -> Transcript:
    try:
        return transcript(hv, target, attempt)
    except (NotFound, InvalidInput):
        raise no_task_or_batch(target) from None


def _print_batch(hv: Context, batch: str, args: argparse.Namespace) -> int:
    if args.attempt is not None or args.patch or args.setup:
        raise InvalidInput("--attempt, --patch and --setup work only with a task: hv logs TASK")
    code = EXIT_OK
    for task in batch_logs.tasks(hv, batch, failed=args.failed, follow=args.follow):
        try:
            log = transcript(hv, task.id)
            pieces = _read(hv, log)
            if not args.json:
                print(batch_logs.heading(task), flush=True)
                pieces = batch_logs.whole_lines(pieces)
            _print_log(log, pieces, args, follow=False)
        except NotFound as error:
            print(f"hv: {error}", file=sys.stderr)
            if hv.store.read(sql.output_sizes, [task.id]):  # it has printed something
                code = EXIT_CODES[error.code]
    return code


def _print_log(
    log: Transcript, pieces: Iterator[bytes], args: argparse.Namespace, *, follow: bool
) -> None:
    if log.agent and not args.raw:
        _print_transcript(log, pieces, as_json=args.json, follow=follow)
    elif args.json:
        _print_json(log, pieces, follow)
    else:
        write_output(pieces, sys.stdout)


def _print_file(hv: Context, log: Transcript, args: argparse.Namespace) -> int:
    name, text = ("patch", patch(hv, log)) if args.patch else ("setup", setup_output(hv, log))
    answer = {**_named(log), name: text.decode("utf-8", "replace")}
    return respond(args, answer, lambda: write_output([text], sys.stdout))


def _print_transcript(
    log: Transcript, pieces: Iterator[bytes], *, as_json: bool, follow: bool
) -> None:
    """The transcript as text, or as objects with --json."""
    columns = columns_here() if sys.stdout.isatty() else None
    whole: list[TranscriptLine] = []
    for entries in transcripts.rendered(pieces, log.stream):
        if as_json and not follow:
            whole += entries
        elif as_json:
            print_json({**_named(log), "transcript": entries})
        else:
            sys.stdout.write(transcripts.text(entries, columns, wants_colour()))
        sys.stdout.flush()
    if as_json and not follow:
        print_json({**_named(log), "transcript": whole})


def _named(log: Transcript) -> dict[str, object]:
    return {"task": log.task, "attempt": log.attempt, "agent": log.agent}


def _read(hv: Context, log: Transcript) -> Iterator[bytes]:
    read(hv, log, 0, 1)  # NotFound if there is none
    return hv.outputs.pieces(log.task, log.attempt)


def _follow(hv: Context, log: Transcript) -> Iterator[bytes]:
    """The output so far, then new output until the attempt has ended."""
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
            continue
        missing = hv.outputs.missing_part(log.task, log.attempt, start)
        if missing and not (runs and missing.is_coming):
            yield missing.note
            start = missing.end
        elif not runs:
            return
        else:
            time.sleep(PAUSE)


def _wait_for_start(hv: Context, task: str) -> None:
    """Wait until the task has been claimed; return at once if it has ended or is a session."""
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
                f"hv: {current.id} is {state_name(current.state)}{why}; waiting for it to run",
                file=sys.stderr,
            )
        time.sleep(PAUSE)


def _print_json(log: Transcript, pieces: Iterator[bytes], follow: bool) -> None:
    """One object with everything; while following, one for each piece."""
    start = 0
    for piece in pieces if follow else [b"".join(pieces)]:
        text = piece.decode("utf-8", "replace")
        print_json({"task": log.task, "attempt": log.attempt, "start": start, "text": text})
        sys.stdout.flush()
        start += len(piece)
