"""The stages of a pipeline for people: how each stands, and the answer of the reduce."""

import json

from hypervisor.batches.pipeline_status import Overview, Reduced, Stage
from hypervisor.cli.output import BOLD, DIM, GREEN, RED, YELLOW, Line, cut, glyphs, joined, one_line
from hypervisor.queue.result import text_of

STYLES = {"done": GREEN, "failed": RED, "cancelled": YELLOW, "blocked": YELLOW, "review": YELLOW}
MOST_LINES = 40  # of what the reduce printed
LONGEST_RESULT = 4_000
WIDEST = 48


def stage_lines(found: Overview, columns: int, answer: bool = True) -> list[Line]:
    """A line for each part, and below them what the reduce says."""
    rows = [(f"stage {n}", each.what, _told(each)) for n, each in enumerate(found.stages, 1)]
    last = found.reduce
    if last is not None:
        rows.append(("reduce", last.what, _of_reduce(last)))
    wide = max(len(name) for name, _, _ in rows)
    room = min(max(len(one_line(what)) for _, what, _ in rows), WIDEST, max(columns // 3, 12))
    lines: list[Line] = [[("", "")]]
    for name, what, told in rows:
        shown = cut(one_line(what), room)
        lines.append([(f"  {name:<{wide}}  ", BOLD), (f"{shown:<{room}}  ", DIM), *told])
    return lines + answer_of(found) if answer else lines


def answer_of(found: Overview) -> list[Line]:
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


def _told(each: Stage) -> Line:
    parts: Line = []
    for state, number in sorted(each.states.items(), key=lambda pair: pair[0] != "done"):
        left = number - each.stuck if state == "waiting" else number
        if left > 0:
            parts.append((f"{left:,} {state.replace('_', ' ')}", STYLES.get(state, "")))
    if each.stuck:
        parts.append((f"{each.stuck:,} not begun", YELLOW))
    return joined(parts) or [("nothing yet", DIM)]


def _of_reduce(last: Reduced) -> Line:
    told: Line = [(last.state.replace("_", " "), STYLES.get(last.state, ""))]
    if last.reason:
        told.append((one_line(last.reason), STYLES.get(last.state, "")))
    return [
        *joined(told),
        (f"{glyphs().dot}hv logs {last.id}" if last.state == "done" else "", DIM),
    ]
