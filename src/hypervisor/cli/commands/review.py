"""hv review"""

import argparse

from hypervisor.batches.chunk import APPROVED, REJECTED
from hypervisor.batches.review import Decided, amend, awaiting, chunks, decide, retry_chunk, review
from hypervisor.cli import checkpoint
from hypervisor.cli.output import clock, one_line, print_json, print_lines, respond, table
from hypervisor.core.errors import EXIT_OK, InvalidInput
from hypervisor.queue.context import Context

EXAMPLE = """hv review
  hv review inbox
  hv review inbox --approve --note 'looks right'
  hv review inbox --retry --note 'invoices are not spam'
  hv review inbox --set 1q12deyb category=invoice"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("batch", nargs="?", metavar="BATCH", help="default: list all that wait")
    parser.add_argument("--chunk", type=int, metavar="N", help="default: the one that waits")
    parser.add_argument("--list", action="store_true", help="all chunks of the batch")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--approve", action="store_true", help="go on with the next chunk")
    what.add_argument("--approve-rest", action="store_true", help="… and ask no more")
    what.add_argument(
        "--reject", action="store_true", help="carry out nothing of it; go on with the next"
    )
    what.add_argument("--retry", action="store_true", help="work on it again, with the note")
    what.add_argument(
        "--set",
        nargs="+",
        metavar=("TASK", "FIELD=VALUE"),
        help="correct what came of an item; an empty value removes it",
    )
    parser.add_argument("--note", default="", metavar="TEXT", help="kept with the decision")
    parser.add_argument("--task", action="append", metavar="TASK", help="retry only this one")


def prepare(args: argparse.Namespace) -> None:
    decides = args.approve or args.approve_rest or args.reject or args.retry or args.set
    if args.batch is None and (decides or args.list or args.chunk):
        raise InvalidInput("name the batch: hv review BATCH.")
    if args.task and not args.retry:
        raise InvalidInput("--task goes with --retry.")
    if args.note and (not decides or args.set):
        raise InvalidInput("--note goes with a decision: --approve, --reject or --retry.")


def run(hv: Context, args: argparse.Namespace) -> int:
    if args.batch is None:
        return _list_waiting(hv, args)
    if args.list:
        return _list_chunks(hv, args)
    if args.set:
        result = amend(hv, args.set[0], dict(map(_pair, args.set[1:])))
        print_json(result)
        return EXIT_OK
    done = _decide(hv, args)
    if done is not None:
        return respond(args, done, checkpoint.decision_text(done))
    asks = args.chunk is None and checkpoint.can_ask() and not args.json
    if asks and awaiting(hv, args.batch):
        done = checkpoint.ask(hv, args.batch)
        print(checkpoint.decision_text(done) if done else "nothing was decided")
        return EXIT_OK
    found = review(hv, args.batch, args.chunk)
    return respond(args, found, lambda: print_lines(checkpoint.lines(found)))


def _decide(hv: Context, args: argparse.Namespace) -> Decided | None:
    if args.approve or args.approve_rest:
        return decide(hv, args.batch, APPROVED, args.chunk, args.note, rest=args.approve_rest)
    if args.reject:
        return decide(hv, args.batch, REJECTED, args.chunk, args.note)
    if args.retry:
        return retry_chunk(hv, args.batch, args.note, args.chunk, args.task or ())
    return None


def _list_waiting(hv: Context, args: argparse.Namespace) -> int:
    waiting = awaiting(hv)

    def show() -> None:
        if not waiting:
            print("no chunk waits for a decision")
            return
        rows = [(chunk.label, f"{chunk.total:,}", batch.name) for batch, chunk in waiting]
        table(("CHUNK", "TASKS", "BATCH"), rows)
        print("\nhv review BATCH shows it and takes your decision")

    answer = [{"batch": batch.name, "chunk": chunk} for batch, chunk in waiting]
    return respond(args, answer, show)


def _list_chunks(hv: Context, args: argparse.Namespace) -> int:
    listed = chunks(hv, args.batch)
    rows = [
        (
            chunk.label,
            "waits" if chunk.awaits_decision else chunk.state,
            f"{chunk.total:,}",
            f"{chunk.unfinished:,}",
            f"{clock(chunk.decided_at)} {one_line(chunk.actor or '')}".strip(),
            chunk.note or "",
        )
        for chunk in listed
    ]
    head = ("CHUNK", "STATE", "TASKS", "LEFT", "DECIDED", "NOTE")
    return respond(args, listed, lambda: table(head, rows))


def _pair(text: str) -> tuple[str, str | None]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise InvalidInput(f"{text[:60]!r} is not FIELD=VALUE.")
    return name, value or None
