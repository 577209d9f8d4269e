"""The findings of pre-flight: values and rules. `preflight.py` reads the files and the store.

Findings that are `in_the_way` would keep tasks from being done; the others are hints.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Literal

from hypervisor.core.records import NamedTuple
from hypervisor.core.text import money_text, pluralize
from hypervisor.resources.limits import size_text, span_text

TRIED_AGAIN = ("failed", "cancelled", "blocked")  # states that a new run of the batch retries
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
MAX_CYCLES = 20


class Strategy(StrEnum):
    """The recommended way to run the items."""

    DIRECT = "direct"
    WORKERS = "workers"
    BATCH = "batch"
    SEQUENTIAL = "sequential"
    NOTHING = "nothing"


DIRECT, WORKERS, BATCH, SEQUENTIAL, NOTHING = Strategy


FindingKind = Literal[
    "unreadable",
    "uncommitted",
    "unknown",
    "cycle",
    "assignee",
    "claimed",
    "duplicate",
    "nobody",
    "capability",
    "budget",
    "disk",
    "memory",
    "overlap",
    "absent",
    "running",
    "again",
]


class Finding(NamedTuple):
    """A finding: its kind, how often it occurs, a sentence, and a few examples."""

    kind: FindingKind
    total: int
    message: str
    examples: tuple[str, ...] = ()
    in_the_way: bool = False


class Estimate(NamedTuple):
    """What the run will probably need; None where there is no earlier run to go by."""

    workers: int
    memory_each: int | None = None
    memory_host: int | None = None
    output_all: int | None = None
    disk_free: int | None = None
    milliseconds: int | None = None
    cost_micros: int | None = None  # of agents


class Preflight(NamedTuple):
    """The result of a preflight. `clear`: there are no problems."""

    headline: str
    clear: bool
    items: int
    to_do: int
    new: int
    tried_again: int
    still_open: int
    complete: int  # already done, according to the store or to their files
    called_off: int  # cancelled, according to their files
    claimed: int  # claimed by someone else, according to the file
    conflicts: int
    linked: int  # items that wait for others
    steps: int  # the longest chain of those
    advice: str
    strategy: Strategy
    order: tuple[str, ...]
    findings: tuple[Finding, ...]
    estimate: Estimate


# Findings about items: whether they prevent the run, the text for one, the text for several.
KINDS: dict[FindingKind, tuple[bool, str, str]] = {
    "unreadable": (True, "1 file is missing or unreadable", "files are missing or unreadable"),
    "unknown": (True, "1 unknown dependency", "unknown dependencies"),
    "cycle": (True, "1 dependency cycle", "dependency cycles"),
    "assignee": (True, "1 has an unknown assignee", "have an unknown assignee"),
    "claimed": (
        False,
        "1 is claimed according to its file and will be skipped",
        "are claimed according to their files and will be skipped",
    ),
    "duplicate": (
        False,
        "1 is given more than once and will run each time",
        "are given more than once and will run each time",
    ),
}


class Chains(NamedTuple):
    """Dependencies between items: the length of the longest chain, and the cycles."""

    steps: int
    cycles: tuple[tuple[str, ...], ...]


def status_in_file(columns: Mapping[str, Any] | None) -> str:
    """The status in a task file: done, cancelled, claimed, or "" if it is open."""
    status = (columns or {}).get("status")
    if not isinstance(status, str):
        return ""
    state = STATUSES.get(status.strip().lower().replace(" ", "_").replace("-", "_"), "")
    return "" if state == CLAIMED and not assignee(columns or {}) else state


def assignee(columns: Mapping[str, Any]) -> str:
    value = columns.get("assignee")
    text = value.strip() if isinstance(value, str) else ""
    return "" if text.lower() in ("none", "nobody", "unassigned", "-") else text


def chains(graph: Mapping[str, Collection[str]]) -> Chains:
    """The longest chain, counted in items, and the cycles."""
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
    """The recommended way to run the items, and a sentence about it."""
    if to_do == 0:
        return NOTHING, "Nothing to do."
    if to_do == 1:
        return DIRECT, "One item: run it directly; a batch gains nothing."
    if (linked and steps >= to_do) or conflicts_all:
        reason = (
            "each waits for the one before" if not conflicts_all else "all touch the same files"
        )
        return SEQUENTIAL, f"Run them one at a time (--strategy sequential): {reason}."
    if to_do <= FEW:
        return WORKERS, f"{to_do} items: a direct worker for each is enough."
    return BATCH, f"{to_do:,} items: run them as a batch."


def headline(result: Preflight) -> str:
    """The result in one line."""
    skipped = {"already done": result.complete, "cancelled": result.called_off}
    parts = [f"{result.to_do:,} to do"]
    if any(skipped.values()):
        reasons = " and ".join(reason for reason, count in skipped.items() if count)
        parts.append(f"{sum(skipped.values()):,} skipped ({reasons})")
    if result.claimed:
        parts.append(f"{result.claimed:,} claimed by others")
    if result.conflicts and result.to_do > 1:
        parts.append(f"{pluralize(result.conflicts, 'conflict')} will run one at a time")
    if blocking := sum(finding.total for finding in result.findings if finding.in_the_way):
        parts.append(pluralize(blocking, "problem"))
    return ", ".join(parts)


def order(result: Preflight, sharing: int) -> tuple[str, ...]:
    """The order of the run, in sentences; `sharing` is the number of items that share files."""
    if not result.to_do:
        return ()
    workers = result.estimate.workers
    at_once = f"up to {workers} at once" if workers > 1 else "one at a time"
    sentences = []
    free = max(result.to_do - result.linked - sharing, 0)
    if free:
        sentences.append(f"{free:,} run in any order, {at_once}.")
    if sharing:
        sentences.append(f"{sharing:,} share files: those with the same file run one at a time.")
    if result.linked and result.steps:
        sentences.append(
            f"{result.linked:,} wait for others: in dependency order, {result.steps} steps deep."
        )
    return tuple(sentences)


def survey_finding(kind: FindingKind, count: int, examples: Sequence[str]) -> Finding:
    in_the_way, singular, plural = KINDS[kind]
    text = singular if count == 1 else f"{count:,} {plural}"
    return Finding(kind, count, text, tuple(examples), in_the_way)


def excess(estimate: Estimate) -> Iterator[Finding]:
    """Resources that this host does not have enough of."""
    output, disk = estimate.output_all, estimate.disk_free
    if output and disk is not None and output > disk:
        yield Finding("disk", 1, "the outputs will not fit on the disk", (), True)
    memory, host = estimate.memory_each, estimate.memory_host
    if memory and host and memory > host:
        yield Finding("memory", 1, "one attempt needs more memory than this host has", (), True)


def costs(estimate: Estimate) -> list[str]:
    """The estimate, in sentences."""
    sentences = []
    if estimate.memory_each is not None:
        total = size_text(estimate.memory_each * estimate.workers)
        factors = f"{estimate.workers} × {size_text(estimate.memory_each)}"
        of = f" of {size_text(estimate.memory_host)}" if estimate.memory_host else ""
        sentences.append(f"Memory: up to {total}{of} ({factors}, the peak seen so far).")
    if estimate.output_all is not None:
        of = f" of {size_text(estimate.disk_free)} free" if estimate.disk_free is not None else ""
        sentences.append(f"Kept outputs: about {size_text(estimate.output_all)}{of}.")
    if estimate.milliseconds is not None:
        sentences.append(f"Time: about {span_text(estimate.milliseconds)}, based on earlier runs.")
    if estimate.cost_micros is not None:
        sentences.append(f"Cost: about {money_text(estimate.cost_micros)}, based on earlier runs.")
    return sentences


def _cycles(waits: dict[str, set[str]]) -> Iterable[tuple[str, ...]]:
    """Every cycle once, without items that only wait for one: follow the dependencies until an
    item repeats."""
    remaining = dict(waits)
    count = 0
    while remaining and count < MAX_CYCLES:
        path: list[str] = []
        positions: dict[str, int] = {}
        task = next(iter(remaining))
        while task in remaining and task not in positions:
            positions[task] = len(path)
            path.append(task)
            task = min(remaining[task] & remaining.keys(), default="")
        if task in positions:
            count += 1
            circle = path[positions[task] :]
            first = circle.index(min(circle))
            yield (*circle[first:], *circle[:first])
        for visited in path:
            remaining.pop(visited, None)
