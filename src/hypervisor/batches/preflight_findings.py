"""Pre-flight: what is known of a run before it starts, and what follows from that.

Values and rules only; `preflight.py` looks at the files and the store.
What stands `in_the_way` would keep tasks from being done; the rest is good to know.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

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
DIRECT, WORKERS, BATCH, SEQUENTIAL, NOTHING = "direct", "workers", "batch", "sequential", "nothing"
FEW = 4
MOST_CYCLES = 20


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
    strategy: str
    order: tuple[str, ...]
    findings: tuple[Finding, ...]
    estimate: Estimate


class Chains(NamedTuple):
    """How items that wait for each other hang together."""

    steps: int
    cycles: tuple[tuple[str, ...], ...]


def standing(columns: Mapping[str, Any] | None) -> str:
    """What a task file says about itself: done, cancelled, claimed, or "" if it is open."""
    status = (columns or {}).get("status")
    if not isinstance(status, str):
        return ""
    found = STATUSES.get(status.strip().lower().replace(" ", "_").replace("-", "_"), "")
    return "" if found == CLAIMED and not _assignee(columns or {}) else found


def assignee(columns: Mapping[str, Any] | None) -> str:
    return _assignee(columns or {})


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


def advice(to_do: int, linked: int, steps: int, conflicts_all: bool) -> tuple[str, str]:
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
    skipped = found.complete + found.called_off
    why = " and ".join(
        word
        for word, count in (("already complete", found.complete), ("cancelled", found.called_off))
        if count
    )
    parts = [f"{found.to_do:,} to do"]
    if skipped:
        parts.append(f"{skipped:,} skipped ({why})")
    if found.claimed:
        parts.append(f"{found.claimed:,} claimed by somebody else")
    if found.conflicts and found.to_do > 1:
        noun = "conflict" if found.conflicts == 1 else "conflicts"
        parts.append(f"{found.conflicts:,} {noun} will run one after the other")
    blocking = sum(each.total for each in found.findings if each.in_the_way)
    if blocking:
        parts.append(f"{blocking:,} {'problem' if blocking == 1 else 'problems'}")
    return ", ".join(parts)


def order(found: Preflight, sharing: int) -> tuple[str, ...]:
    """What will happen in which order; `sharing` is how many items share a file with others."""
    if not found.to_do:
        return ()
    workers = found.estimate.workers
    at_once = f"up to {workers} at once" if workers > 1 else "one at a time"
    said = []
    free = max(found.to_do - found.linked - sharing, 0)
    if free:
        said.append(f"{free:,} run in any order, {at_once}.")
    if sharing:
        said.append(f"{sharing:,} share files: those with the same file run one after the other.")
    if found.linked and found.steps:
        said.append(
            f"{found.linked:,} wait for others: in dependency order, {found.steps} steps deep."
        )
    return tuple(said)


def costs(estimate: Estimate) -> list[str]:
    """What it will take, in sentences."""
    said = []
    if estimate.memory_each is not None:
        whole = size_text(estimate.memory_each * estimate.workers)
        each = f"{estimate.workers} × {size_text(estimate.memory_each)}"
        of = f" of {size_text(estimate.memory_host)}" if estimate.memory_host else ""
        said.append(f"Memory: up to {whole}{of} ({each}, the peak seen so far).")
    if estimate.output_all is not None:
        of = f" of {size_text(estimate.disk_free)} free" if estimate.disk_free is not None else ""
        said.append(f"Kept outputs: about {size_text(estimate.output_all)}{of}.")
    if estimate.milliseconds is not None:
        said.append(f"Time: about {span_text(estimate.milliseconds)}, as it went before.")
    if estimate.cost_micros is not None:
        said.append(f"Cost: about {estimate.cost_micros / 1e6:.2f}, as it went before.")
    return said


def _assignee(columns: Mapping[str, Any]) -> str:
    value = columns.get("assignee")
    text = value.strip() if isinstance(value, str) else ""
    return "" if text.lower() in ("none", "nobody", "unassigned", "-") else text


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
        for each in path:
            left.pop(each, None)
