"""Pre-flight: what is known of a run before it starts, and what follows from that.

Values and rules only; `preflight.py` looks at the files and the store.
What stands `in_the_way` would keep tasks from being done; the rest is good to know.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from hypervisor.core.text import pluralize
from hypervisor.resources.limits import size_text, span_text

TRIED_AGAIN = ("failed", "cancelled", "blocked")  # what running the same batch again takes up
DONE, CANCELLED, CLAIMED = "done", "cancelled", "claimed"
STATUSES = {
    "done": DONE,
    "closed": DONE,
    "complete": DONE,
    "completed": DONE,
    "resolved": DONE,
    "cancelled": CANCELLED,
    "canceled": CANCELLED,
    "in_progress": CLAIMED,
    "claimed": CLAIMED,
}
FEW = 4
MOST_CYCLES = 20


class Strategy(StrEnum):
    """How best to run items."""

    DIRECT = "direct"
    WORKERS = "workers"
    BATCH = "batch"
    SEQUENTIAL = "sequential"
    NOTHING = "nothing"


DIRECT, WORKERS, BATCH, SEQUENTIAL, NOTHING = Strategy


class Finding(NamedTuple):
    """One kind of thing that was found: how often, a sentence, and the first few."""

    kind: str
    total: int
    said: str
    examples: tuple[str, ...] = ()
    in_the_way: bool = False


class Estimate(NamedTuple):
    """What the run is likely to take; None where nothing like it has run before."""

    workers: int
    memory_each: int | None = None
    memory_host: int | None = None
    output_all: int | None = None
    disk_free: int | None = None
    milliseconds: int | None = None
    cost_micros: int | None = None  # of agents


class Preflight(NamedTuple):
    """The whole answer. `clear` says that nothing stands in the way."""

    headline: str
    clear: bool
    items: int
    to_do: int
    new: int
    tried_again: int
    still_open: int
    complete: int  # done before, by the store or by their own file
    called_off: int  # cancelled, by their own file
    claimed: int  # somebody else is at it, by their own file
    conflicts: int
    linked: int  # items that wait for others
    steps: int  # the longest chain of those
    advice: str
    strategy: Strategy
    order: tuple[str, ...]
    findings: tuple[Finding, ...]
    estimate: Estimate


# What the survey of items may find: whether it stands in the way, one of them, several.
KINDS: dict[str, tuple[bool, str, str]] = {
    "unreadable": (True, "1 file is missing or unreadable", "files are missing or unreadable"),
    "unknown": (True, "1 unknown dependency", "unknown dependencies"),
    "cycle": (True, "1 dependency cycle", "dependency cycles"),
    "assignee": (True, "1 is assigned to somebody unknown", "are assigned to somebody unknown"),
    "claimed": (
        False,
        "1 is claimed, as its file says, and left alone",
        "are claimed, as their files say, and left alone",
    ),
    "duplicate": (
        False,
        "1 is given more than once, and run as often",
        "are given more than once, and run as often",
    ),
}


class Chains(NamedTuple):
    """How items that wait for each other hang together."""

    steps: int
    cycles: tuple[tuple[str, ...], ...]


def standing(columns: Mapping[str, Any] | None) -> str:
    """What a task file says about itself: done, cancelled, claimed, or "" if it is open."""
    status = (columns or {}).get("status")
    if not isinstance(status, str):
        return ""
    known = STATUSES.get(status.strip().lower().replace(" ", "_").replace("-", "_"), "")
    return "" if known == CLAIMED and not assignee(columns or {}) else known


def assignee(columns: Mapping[str, Any]) -> str:
    value = columns.get("assignee")
    text = value.strip() if isinstance(value, str) else ""
    return "" if text.lower() in ("none", "nobody", "unassigned", "-") else text


def chains(graph: Mapping[str, Collection[str]]) -> Chains:
    """How long the longest chain is, counted in items, and which items wait in a circle."""
    waits = {task: {need for need in needs if need in graph} for task, needs in graph.items()}
    followers: dict[str, list[str]] = {}
    for task, needs in waits.items():
        for need in needs:
            followers.setdefault(need, []).append(task)
    steps, ready = 0, [task for task, needs in waits.items() if not needs]
    while ready:
        steps += 1
        freed = []
        for task in ready:
            del waits[task]
            for follower in followers.get(task, ()):
                waits[follower].discard(task)
                if not waits[follower]:
                    freed.append(follower)
        ready = freed
    return Chains(steps, tuple(_cycles(waits)))


def advice(to_do: int, linked: int, steps: int, conflicts_all: bool) -> tuple[Strategy, str]:
    """How best to run so many items: the name of the way, and a sentence."""
    if to_do == 0:
        return NOTHING, "Nothing is left to do."
    if to_do == 1:
        return DIRECT, "One item: run it directly, a batch gains nothing."
    if (linked and steps >= to_do) or conflicts_all:
        why = "each waits for the one before" if not conflicts_all else "all touch the same files"
        return SEQUENTIAL, f"Run them one after the other (--strategy sequential): {why}."
    if to_do <= FEW:
        return WORKERS, f"{to_do} items: a direct worker for each is enough."
    return BATCH, f"{to_do:,} items: run them as a batch."


def headline(found: Preflight) -> str:
    """One line that says it all."""
    skipped = {"already complete": found.complete, "cancelled": found.called_off}
    parts = [f"{found.to_do:,} to do"]
    if any(skipped.values()):
        why = " and ".join(reason for reason, count in skipped.items() if count)
        parts.append(f"{sum(skipped.values()):,} skipped ({why})")
    if found.claimed:
        parts.append(f"{found.claimed:,} claimed by somebody else")
    if found.conflicts and found.to_do > 1:
        parts.append(f"{pluralize(found.conflicts, 'conflict')} will run one after the other")
    if blocking := sum(finding.total for finding in found.findings if finding.in_the_way):
        parts.append(pluralize(blocking, "problem"))
    return ", ".join(parts)


def order(found: Preflight, sharing: int) -> tuple[str, ...]:
    """What will happen in which order; `sharing` is how many items share a file with others."""
    if not found.to_do:
        return ()
    workers = found.estimate.workers
    at_once = f"up to {workers} at once" if workers > 1 else "one at a time"
    sentences = []
    free = max(found.to_do - found.linked - sharing, 0)
    if free:
        sentences.append(f"{free:,} run in any order, {at_once}.")
    if sharing:
        sentences.append(
            f"{sharing:,} share files: those with the same file run one after the other."
        )
    if found.linked and found.steps:
        sentences.append(
            f"{found.linked:,} wait for others: in dependency order, {found.steps} steps deep."
        )
    return tuple(sentences)


def survey_finding(kind: str, count: int, examples: Sequence[str]) -> Finding:
    in_the_way, one, several = KINDS[kind]
    text = one if count == 1 else f"{count:,} {several}"
    return Finding(kind, count, text, tuple(examples), in_the_way)


def excess(estimate: Estimate) -> Iterator[Finding]:
    """What the host has too little of."""
    output, disk = estimate.output_all, estimate.disk_free
    if output and disk is not None and output > disk:
        yield Finding("disk", 1, "the outputs will not fit on the disk", (), True)
    memory, host = estimate.memory_each, estimate.memory_host
    if memory and host and memory > host:
        yield Finding("memory", 1, "one attempt needs more memory than this host has", (), True)


def costs(estimate: Estimate) -> list[str]:
    """What it will take, in sentences."""
    sentences = []
    if estimate.memory_each is not None:
        whole = size_text(estimate.memory_each * estimate.workers)
        factors = f"{estimate.workers} × {size_text(estimate.memory_each)}"
        of = f" of {size_text(estimate.memory_host)}" if estimate.memory_host else ""
        sentences.append(f"Memory: up to {whole}{of} ({factors}, the peak seen so far).")
    if estimate.output_all is not None:
        of = f" of {size_text(estimate.disk_free)} free" if estimate.disk_free is not None else ""
        sentences.append(f"Kept outputs: about {size_text(estimate.output_all)}{of}.")
    if estimate.milliseconds is not None:
        sentences.append(f"Time: about {span_text(estimate.milliseconds)}, as it went before.")
    if estimate.cost_micros is not None:
        sentences.append(f"Cost: about {estimate.cost_micros / 1e6:.2f}, as it went before.")
    return sentences


def _cycles(waits: dict[str, set[str]]) -> Iterable[tuple[str, ...]]:
    """Each circle once: walk until a task comes again. What only waits for one is no part."""
    left = dict(waits)
    found = 0
    while left and found < MOST_CYCLES:
        path: list[str] = []
        seen: dict[str, int] = {}
        task = next(iter(left))
        while task in left and task not in seen:
            seen[task] = len(path)
            path.append(task)
            task = min(left[task] & left.keys(), default="")
        if task in seen:
            found += 1
            circle = path[seen[task] :]
            first = circle.index(min(circle))
            yield (*circle[first:], *circle[:first])
        for visited in path:
            left.pop(visited, None)
