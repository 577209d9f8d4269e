"""A checkpoint for people: what came of a chunk, and the question what to do about it."""

import shlex
import sys
from collections.abc import Mapping
from itertools import groupby

from hypervisor.batches.checkpoint import Checkpoint
from hypervisor.batches.chunk import APPROVED, REJECTED, Chunk
from hypervisor.batches.review import Decided, amend, decide, retry_chunk, review
from hypervisor.cli.output import (
    BOLD,
    DIM,
    GREEN,
    RED,
    YELLOW,
    Line,
    duration,
    one_line,
    print_lines,
)
from hypervisor.core.text import pluralize
from hypervisor.queue.context import Context
from hypervisor.queue.result import NO_CATEGORY

BAR = 24
QUESTION = "[a]pprove  [r]eject  [t]ry again  [e]dit an item  [A]pprove all the rest  [q]uit: "
LINES = {"open": YELLOW, "approved": GREEN, "rejected": RED, "held": DIM, "free": ""}


def lines(checkpoint: Checkpoint) -> list[Line]:
    chunk = checkpoint.chunk
    standing = _standing(chunk)
    return [
        [
            (one_line(chunk.label), BOLD),
            (f" of {one_line(checkpoint.batch)}: ", ""),
            (standing, LINES[chunk.state]),
        ],
        [(_figures(checkpoint), DIM)],
        *_counts("categories", checkpoint.categories if _is_sorted(checkpoint) else {}),
        *_counts("proposes", checkpoint.proposals),
        *_samples(checkpoint),
        *_failures(checkpoint),
        [("", "")],
        [("then  ", DIM), (one_line(checkpoint.next), "")],
    ]


def _is_sorted(checkpoint: Checkpoint) -> bool:
    """Whether anybody named a category."""
    return not set(checkpoint.categories) <= {NO_CATEGORY}


def _standing(chunk: Chunk) -> str:
    if chunk.awaits_decision:
        return "waits for a decision"
    if chunk.state == "free" and not chunk.actor:
        return "needs no decision"
    if chunk.state == "open":
        return f"{chunk.unfinished} of {chunk.total} not finished"
    by = f" by {one_line(chunk.actor)}" if chunk.actor else ""
    note = f": {one_line(chunk.note)}" if chunk.note else ""
    return f"{chunk.state}{by}{note}"


def _figures(checkpoint: Checkpoint) -> str:
    states = ", ".join(
        f"{count:,} {state}" for state, count in sorted(checkpoint.chunk.tasks.items())
    )
    cost = f", cost {checkpoint.cost:.2f}" if checkpoint.cost is not None else ""
    return f"{states or 'no tasks'}, {duration(int(checkpoint.seconds * 1000))} of work{cost}"


def _counts(title: str, counts: Mapping[str, int]) -> list[Line]:
    if not counts:
        return []
    most = max(counts.values())
    widest = min(max(len(name) for name in counts), 30)
    head: list[Line] = [[("", "")], [(title, BOLD)]]
    return head + [
        [
            (f"  {one_line(name)[:30]:<{widest}}  ", ""),
            (f"{count:>6,}  ", ""),
            ("█" * max(round(BAR * count / most), 1), GREEN),
        ]
        for name, count in counts.items()
    ]


def _samples(checkpoint: Checkpoint) -> list[Line]:
    if not checkpoint.samples:
        return []
    rows: list[Line] = [[("", "")], [("samples", BOLD), (" (unusual ones first)", DIM)]]
    for category, samples in groupby(checkpoint.samples, key=lambda sample: sample.category):
        if _is_sorted(checkpoint):
            rows.append([(f"  {one_line(category)}", YELLOW)])
        for sample in samples:
            rows.append(
                [
                    (f"    {sample.task}  ", DIM),
                    (one_line(sample.title), ""),
                    (f"  ({sample.why})", DIM),
                ]
            )
            if sample.rationale:
                rows.append([(f"      {one_line(sample.rationale)}", DIM)])
    return rows


def _failures(checkpoint: Checkpoint) -> list[Line]:
    if not checkpoint.failures:
        return []
    return [
        [("", "")],
        [("not done", BOLD)],
        *(
            [
                (f"  {task.id}  ", DIM),
                (f"{task.state}  ", RED),
                (one_line(task.title), ""),
                (f"  {one_line(task.reason or '')}", DIM),
            ]
            for task in checkpoint.failures
        ),
    ]


def decision_text(done: Decided) -> str:
    """What a decision did, in one line."""
    name = shlex.quote(done.batch)
    if done.decision == "retry":
        return f"chunk {done.chunk}: {pluralize(done.tasks, 'task')} will be tried again"
    if not done.opened:
        return f"chunk {done.chunk} {done.decision}; no chunk is left to run"
    which = ", ".join(map(str, done.opened[:5])) + (" …" if len(done.opened) > 5 else "")
    runs = f"chunk {which} runs" if len(done.opened) == 1 else f"chunks {which} run"
    return f"chunk {done.chunk} {done.decision}; {runs} now: hv status {name} --watch"


def can_ask() -> bool:
    """Whether somebody sits there; standard input may have been used up for the items."""
    return not sys.stdin.closed and sys.stdin.isatty() and sys.stdout.isatty()


def ask(hv: Context, batch: str) -> Decided | None:
    """Show the checkpoint and ask until something was decided; None: leave it for later."""
    while True:
        checkpoint = review(hv, batch)
        print_lines(lines(checkpoint))
        print()
        answer = _input(QUESTION)
        number = checkpoint.chunk.number
        if answer in ("q", ""):
            return None
        if answer == "a":
            return decide(hv, batch, APPROVED, number, _input("note (may be empty): "))
        if answer == "A":
            return decide(hv, batch, APPROVED, number, rest=True)
        if answer == "r":
            return decide(hv, batch, REJECTED, number, _input("why: "))
        if answer == "t":
            note = _input("note for the worker: ")
            which = _input("which tasks (ids; empty: all of the chunk): ").split()
            return retry_chunk(hv, batch, note, number, which)
        if answer == "e":
            _edit(hv)
        else:
            print(f"{answer!r} is none of the answers.")


def _edit(hv: Context) -> None:
    task = _input("task: ")
    field, _, value = _input("field=value (as in category=task): ").partition("=")
    if task and field.strip():
        amend(hv, task, {field.strip(): value.strip() or None})


def _input(prompt: str) -> str:
    try:
        return input(prompt).strip()
    except EOFError:
        return "q"
