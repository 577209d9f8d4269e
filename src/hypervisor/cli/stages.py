"""Several parts shown as one: the stages of a whole, how far each is, and what the reduce says."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from hypervisor.agents.running_status import Money
from hypervisor.batches.pipeline import reduce_name
from hypervisor.batches.pipeline_status import Overview, Reduced, Stage
from hypervisor.cli.output import cut, one_line
from hypervisor.cli.progress import count
from hypervisor.cli.render import BOLD, DIM, GREEN, RED, YELLOW, Span, glyphs, joined
from hypervisor.queue.result import text_of
from hypervisor.queue.task import Stats
from hypervisor.runs.run import Summary
from hypervisor.runs.status import Status

COLOURS = {"done": GREEN, "failed": RED, "cancelled": YELLOW, "blocked": YELLOW, "review": YELLOW}
MOST_LINES = 40  # of what the reduce printed
LONGEST_RESULT = 4_000
WIDEST = 48


def together(found: Sequence[Status]) -> Status:
    """How all parts stand, as if they were one batch: that of the first."""
    if len(found) == 1:
        return found[0]
    pauses = dict.fromkeys(pause for each in found for pause in each.pauses)
    brakes = dict.fromkeys(brake for each in found for brake in each.brakes)
    attempts = sorted((a for each in found for a in each.attempts), key=lambda a: a.since)
    checkpoint = next((each.checkpoint for each in found if each.checkpoint), None)
    return found[0]._replace(
        stats=_stats([each.stats for each in found]),
        attempts=tuple(attempts),
        pauses=tuple(pauses),
        brakes=tuple(brakes),
        checkpoint=checkpoint,
        money=_money([each.money for each in found if each.money]),
    )


def _stats(found: Sequence[Stats]) -> Stats:
    states: Counter[str] = Counter()
    types: dict[str, dict[str, int]] = {}
    for each in found:
        states.update(each.states)
        for kind, counts in each.types.items():
            types[kind] = dict(Counter(types.get(kind, {})) + Counter(counts))
    return found[0]._replace(
        total=sum(each.total for each in found),
        states=states,
        types=types,
        remaining=sum(each.remaining for each in found),
        claimed=sum(each.claimed for each in found),
    )


def _money(found: Sequence[Money]) -> Money | None:
    if len(found) < 2:
        return found[0] if found else None
    spent = found[0].spent
    for each in found[1:]:
        spent = spent._replace(
            tokens=spent.tokens + each.spent.tokens,
            cost_micros=spent.cost_micros + each.spent.cost_micros,
            estimated=spent.estimated or each.spent.estimated,
            unpriced=spent.unpriced + each.spent.unpriced,
        )
    return Money(spent, tuple(dict.fromkeys(used for each in found for used in each.used)))


def added_up(found: Sequence[Summary]) -> Summary:
    """What all parts took together."""
    tokens = [each.tokens for each in found if each.tokens is not None]
    costs = [each.cost for each in found if each.cost is not None]
    return found[0]._replace(
        cpu_seconds=sum(each.cpu_seconds for each in found),
        peak_bytes=max(each.peak_bytes for each in found),
        attempts=sum(each.attempts for each in found),
        tokens=sum(tokens) if tokens else None,
        cost=sum(costs) if costs else None,
        estimated=any(each.estimated for each in found),
    )


def stages_of(found: Sequence[Status]) -> tuple[Span, ...]:
    """How far each part is, in a few words each."""
    first = found[0].batch
    names = [each.batch.name if each.batch else "" for each in found]
    told: list[Span] = []
    for number, (status, name) in enumerate(zip(found, names, strict=True), 1):
        counts = count(status.stats.states, status.attempts)
        colour = RED if counts.failed else GREEN if not counts.open else ""
        if first is not None and name == reduce_name(first.name):
            said = "runs" if counts.running else "waits" if counts.open else "ended"
            told.append((f"reduce {said}", colour))
        else:
            told.append((f"stage {number} {counts.ended:,}/{counts.total:,}", colour))
    return tuple(told)


def stage_lines(found: Overview, columns: int, answer: bool = True) -> list[list[Span]]:
    """A line for each part, and below them what the reduce says."""
    rows = [(f"stage {n}", each.what, _told(each)) for n, each in enumerate(found.stages, 1)]
    last = found.reduce
    if last is not None:
        rows.append(("reduce", last.what, _of_reduce(last)))
    wide = max(len(name) for name, _, _ in rows)
    room = min(max(len(one_line(what)) for _, what, _ in rows), WIDEST, max(columns // 3, 12))
    lines: list[list[Span]] = [[("", "")]]
    for name, what, told in rows:
        shown = cut(one_line(what), room)
        lines.append([(f"  {name:<{wide}}  ", BOLD), (f"{shown:<{room}}  ", DIM), *told])
    return lines + answer_of(found) if answer else lines


def answer_of(found: Overview) -> list[list[Span]]:
    """What came of the reduce, below everything else."""
    if found.reduce is None or found.reduce.state != "done":
        return []
    return [[("", "")], *([(line, "")] for line in answer_lines(found.reduce))]


def answer_lines(last: Reduced) -> list[str]:
    """What came of the reduce: its result, or what it printed, the end of it if that is long."""
    if last.result is not None:
        said = last.result if isinstance(last.result, str) else text_of(last.result, "summary")
        lines = (said or json.dumps(last.result, ensure_ascii=False)).splitlines()
    else:
        lines = last.output.splitlines()
    shown = [one_line(line[:LONGEST_RESULT]) for line in lines[-MOST_LINES:]]
    if len(lines) > MOST_LINES or len(last.output) >= 64 << 10:
        shown.append(f"  (the end of it; hv logs {last.id} has all)")
    return shown or [f"  the reduce printed nothing; hv show {last.id} tells of it"]


def _told(each: Stage) -> list[Span]:
    parts: list[Span] = []
    for state, number in sorted(each.states.items(), key=lambda pair: pair[0] != "done"):
        left = number - each.stuck if state == "waiting" else number
        if left > 0:
            parts.append((f"{left:,} {state.replace('_', ' ')}", COLOURS.get(state, "")))
    if each.stuck:
        parts.append((f"{each.stuck:,} not begun", YELLOW))
    return joined(parts) or [("nothing yet", DIM)]


def _of_reduce(last: Reduced) -> list[Span]:
    told: list[Span] = [(last.state.replace("_", " "), COLOURS.get(last.state, ""))]
    if last.reason:
        told.append((one_line(last.reason), COLOURS.get(last.state, "")))
    return [
        *joined(told),
        (f"{glyphs().dot}hv logs {last.id}" if last.state == "done" else "", DIM),
    ]
