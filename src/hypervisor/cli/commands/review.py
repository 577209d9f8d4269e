"""hv review"""

import argparse
import shlex
import sys
from typing import Any

from hypervisor.batches.review import (
    Decided,
    ToDecide,
    amend,
    awaiting,
    chunks,
    decide,
    retry_chunk,
    review,
)
from hypervisor.batches.review_items import MAX_ITEMS, ReviewItem, review_items
from hypervisor.cli import checkpoint
from hypervisor.cli.latest import chosen, named_or_latest
from hypervisor.cli.output import clock, one_line, print_json, print_lines, respond, table
from hypervisor.core.errors import EXIT_OK, InvalidInput
from hypervisor.queue.context import Context
from hypervisor.queue.lifecycle import state_name
from hypervisor.queue.queries import MAX_LISTED, list_tasks
from hypervisor.queue.result import actions_in, result_in
from hypervisor.queue.task import Task

DESCRIPTION = """Show how a chunk went, with samples and failures, and decide how to continue.
Without a batch: what is waiting for a decision, chunks and tasks in review."""
EXAMPLE = """hv review
  hv review inbox
  hv review inbox --approve --note 'looks right'
  hv review inbox --retry --note 'invoices are not spam'
  hv review inbox --items --category invoice
  hv review inbox --set 1q12deyb category=invoice"""


NEXT_STEPS = """
hv diff TASK      what it changed
hv resolve TASK   resolve its conflict in a prepared workspace
hv approve TASK   merge it (it is verified again)
hv retry TASK     do it again
hv reject TASK    it has failed; its commits are kept"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "batch",
        nargs="?",
        metavar="BATCH",
        help="name or id of a batch (default: the one that is waiting for a decision)",
    )
    parser.add_argument(
        "--chunk", type=int, metavar="N", help="chunk number (default: the one that is waiting)"
    )
    parser.add_argument("--list", action="store_true", help="list all chunks of the batch")
    parser.add_argument("--items", action="store_true", help="list all items of the chunk")
    parser.add_argument("--category", metavar="NAME", help="with --items: only this category")
    decision = parser.add_mutually_exclusive_group()
    decision.add_argument(
        "--approve", action="store_true", help="approve the chunk and continue with the next"
    )
    decision.add_argument(
        "--approve-rest", action="store_true", help="approve this chunk and all later ones"
    )
    decision.add_argument(
        "--reject", action="store_true", help="discard its results and continue with the next"
    )
    decision.add_argument("--retry", action="store_true", help="retry the chunk, with the note")
    decision.add_argument(
        "--set",
        nargs="+",
        metavar=("TASK", "FIELD=VALUE"),
        help="correct fields of a task's result; an empty value removes the field, "
        "FIELD:=JSON sets any value",
    )
    parser.add_argument("--note", default="", metavar="TEXT", help="note, kept with the decision")
    parser.add_argument(
        "--task", action="append", metavar="TASK", help="with --retry: retry only this task"
    )


def prepare(args: argparse.Namespace) -> None:
    if args.batch is None and (_decides(args) or args.set):
        raise InvalidInput("no batch given: hv review BATCH")
    if args.task and not args.retry:
        raise InvalidInput("--task works only with --retry.")
    if args.category is not None and not args.items:
        raise InvalidInput("--category works only with --items.")
    if args.note and not _decides(args):
        raise InvalidInput("--note works only with --approve, --reject or --retry.")


def _decides(args: argparse.Namespace) -> bool:
    return bool(args.approve or args.approve_rest or args.reject or args.retry)


def run(hv: Context, args: argparse.Namespace) -> int:
    if args.batch is None:
        args.batch = _default_batch(hv, args)
    if args.batch is None:
        return _list_waiting(hv, args)
    if args.list:
        return _list_chunks(hv, args)
    if args.items:
        return _list_items(hv, args)
    if args.set:
        return _amend(hv, args.batch, args.set[0], dict(map(_pair, args.set[1:])))
    done = _decide(hv, args)
    if done is not None:
        return respond(args, done, checkpoint.decision_text(done))
    asks = args.chunk is None and checkpoint.can_ask() and not args.json
    if asks and awaiting(hv, args.batch):
        done = checkpoint.ask(hv, args.batch)
        print(checkpoint.decision_text(done) if done else "no decision was made")
        return EXIT_OK
    if args.chunk is None and not chunks(hv, args.batch):
        return _list_waiting(hv, args)
    reviewed = review(hv, args.batch, args.chunk)
    return respond(args, reviewed, lambda: print_lines(checkpoint.lines(reviewed)), hv=hv)


def _list_items(hv: Context, args: argparse.Namespace) -> int:
    number = args.chunk or review(hv, args.batch).chunk.number
    items: list[ReviewItem] = []
    after = ""
    while True:
        wanted = {"category": args.category or "", "after": after}
        page = review_items(hv, args.batch, number, **wanted, limit=MAX_ITEMS)
        items += page.items
        if not (after := page.next):
            break
    rows = [
        (item.task, state_name(item.state), ", ".join(item.categories), one_line(item.title))
        for item in items
    ]
    head = ("TASK", "STATE", "CATEGORY", "TITLE")
    return respond(args, items, lambda: table(head, rows), hv=hv)


def _amend(hv: Context, batch: str, task: str, changes: dict[str, Any]) -> int:
    result = amend(hv, task, changes)
    print_json(result)
    if changes.get("category") and actions_in(result):
        note = shlex.quote(f"category: {changes['category']}")
        command = f"hv review {shlex.quote(batch)} --retry --task {task} --note {note}"
        print(
            one_line(
                f"hv: the proposed changes are still those of the old category; to get new "
                f"ones: {command}"
            ),
            file=sys.stderr,
        )
    return EXIT_OK


def _decide(hv: Context, args: argparse.Namespace) -> Decided | None:
    if args.approve or args.approve_rest:
        return decide(hv, args.batch, "approved", args.chunk, args.note, rest=args.approve_rest)
    if args.reject:
        return decide(hv, args.batch, "rejected", args.chunk, args.note)
    if args.retry:
        return retry_chunk(hv, args.batch, args.note, args.chunk, args.task or ())
    return None


def _default_batch(hv: Context, args: argparse.Namespace) -> str | None:
    """The only batch that is waiting, or the latest one to look at; None: list all that wait."""
    waiting = list({batch.id: batch for batch, _ in awaiting(hv)}.values())
    if len(waiting) == 1 and not args.json:
        return chosen(waiting[0], "batch")
    return named_or_latest(hv, None) if args.list or args.chunk else None


def _list_waiting(hv: Context, args: argparse.Namespace) -> int:
    waiting = awaiting(hv, args.batch)
    tasks = list_tasks(hv, ("review",), batch=args.batch, limit=MAX_LISTED)

    def show() -> None:
        if not waiting and not tasks:
            print("nothing is waiting for a decision")
        if waiting:
            rows = [(chunk.label, f"{chunk.total:,}", batch.name) for batch, chunk in waiting]
            table(("CHUNK", "TASKS", "BATCH"), rows)
            print("\nto review one: hv review BATCH")
        if tasks:
            print("\n" * bool(waiting), end="")
            table(("TASK", "IN REVIEW BECAUSE"), [(task.id, _why(task)) for task in tasks])
            print(NEXT_STEPS)

    answer = [ToDecide(batch.id, chunk=chunk) for batch, chunk in waiting]
    answer += [ToDecide(task.batch, task=task) for task in tasks]
    return respond(args, answer, show, hv=hv)


def _why(task: Task) -> str:
    return one_line(f"{task.title}: {task.reason}" if task.reason else task.title)


def _list_chunks(hv: Context, args: argparse.Namespace) -> int:
    listed = chunks(hv, args.batch)
    rows = [
        (
            chunk.label,
            "waiting" if chunk.awaits_decision else chunk.state,
            f"{chunk.total:,}",
            f"{chunk.unfinished:,}",
            f"{clock(chunk.decided_at)} {one_line(chunk.actor or '')}".strip(),
            chunk.note or "",
        )
        for chunk in listed
    ]
    head = ("CHUNK", "STATE", "TASKS", "LEFT", "DECIDED", "NOTE")
    return respond(args, listed, lambda: table(head, rows), hv=hv)


def _pair(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise InvalidInput(f"invalid correction {text[:60]!r}: use FIELD=VALUE.")
    if not name.endswith(":"):
        return name, value or None
    try:
        return name[:-1], result_in(value.encode())
    except ValueError:
        raise InvalidInput(f"invalid correction {text[:60]!r}: the value is not JSON.") from None
