"""A checkpoint on the terminal: the results of a chunk, and the question how to continue."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from itertools import groupby
from typing import TYPE_CHECKING

from hypervisor.batches.chunk import Chunk
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
from hypervisor.core.errors import RequestError
from hypervisor.core.text import money_text, pluralize
from hypervisor.queue.context import Context
from hypervisor.queue.lifecycle import state_name
from hypervisor.queue.result import NO_CATEGORY

if TYPE_CHECKING:
    from hypervisor.batches.checkpoint import Checkpoint

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
        *_counts("proposed changes", checkpoint.proposals),
        *_samples(checkpoint),
        *_failures(checkpoint),
        [("", "")],
        [("then  ", DIM), (one_line(checkpoint.next), "")],
    ]


def _is_sorted(checkpoint: Checkpoint) -> bool:
    """Whether any result has a category."""
    return not set(checkpoint.categories) <= {NO_CATEGORY}


def _standing(chunk: Chunk) -> str:
    if chunk.awaits_decision:
        return "waiting for a decision"
    if chunk.state == "free" and not chunk.actor:
        return "needs no decision"
    if chunk.state == "open":
        return f"{chunk.unfinished} of {chunk.total} not finished"
    by = f" by {one_line(chunk.actor)}" if chunk.actor else ""
    note = f": {one_line(chunk.note)}" if chunk.note else ""
    return f"{chunk.state}{by}{note}"


def _figures(checkpoint: Checkpoint) -> str:
    states = ", ".join(
        f"{count:,} {state_name(state)}" for state, count in sorted(checkpoint.chunk.tasks.items())
    )
    cost = (
        f", cost {money_text(round(checkpoint.cost * 1e6))}" if checkpoint.cost is not None else ""
    )
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
                (f"{state_name(task.state)}  ", RED),
                (one_line(task.title), ""),
                (f"  {one_line(task.reason or '')}", DIM),
            ]
            for task in checkpoint.failures
        ),
    ]


def decision_text(done: Decided) -> str:
    """The effect of a decision, in one line."""
    name = shlex.quote(done.batch)
    if done.decision == "retry":
        corrected = pluralize(done.kept, "corrected task")
        kept = f"; {corrected} will be kept (to retry one: --task TASK)" if done.kept else ""
        return f"chunk {done.chunk}: {pluralize(done.tasks, 'task')} will be retried{kept}"
    if not done.opened:
        return f"chunk {done.chunk} {done.decision}; no chunks left to run"
    which = ", ".join(map(str, done.opened[:5])) + (" …" if len(done.opened) > 5 else "")
    runs = f"chunk {which} runs" if len(done.opened) == 1 else f"chunks {which} run"
    return f"chunk {done.chunk} {done.decision}; {runs} now: hv status {name} --watch"


def can_ask() -> bool:
    """Whether a person can answer; stdin may have been used for the items."""
    return not sys.stdin.closed and sys.stdin.isatty() and sys.stdout.isatty()


def ask(hv: Context, batch: str) -> Decided | None:
    """Show the checkpoint and ask until there is a decision; None: no decision now."""
    number = _show(hv, batch)
    while (answer := ask_line(QUESTION)) not in ("q", ""):
        try:
            decision = _carry_out(hv, batch, number, answer)
        except RequestError as error:  # a mistyped id, for example
            print(one_line(str(error)))
            continue
        if decision is not None:
            return decision
        if answer == "e":
            number = _show(hv, batch)
    return None


def _show(hv: Context, batch: str) -> int:
    """Show the checkpoint. Returns the number of its chunk."""
    checkpoint = review(hv, batch)
    print_lines(lines(checkpoint))
    print()
    return checkpoint.chunk.number


def _carry_out(hv: Context, batch: str, number: int, answer: str) -> Decided | None:
    if answer == "a":
        return decide(hv, batch, "approved", number, ask_line("note (optional): "))
    if answer == "A":
        return decide(hv, batch, "approved", number, rest=True)
    if answer == "r":
        return decide(hv, batch, "rejected", number, ask_line("reason: "))
    if answer == "t":
        note = ask_line("note for the worker: ")
        tasks = ask_line("task ids (default: the whole chunk): ").split()
        return retry_chunk(hv, batch, note, number, tasks)
    if answer == "e":
        _edit(hv)
    else:
        print(f"invalid answer {answer[:40]!r}: type a, r, t, e, A or q")
    return None


def _edit(hv: Context) -> None:
    task = ask_line("task id: ")
    field, _, value = ask_line("field=value, e.g. category=invoice: ").partition("=")
    if task and field.strip():
        amend(hv, task, {field.strip(): value.strip() or None})


def ask_line(prompt: str) -> str:
    try:
        return input(prompt).strip()
    except EOFError:
        return "q"
