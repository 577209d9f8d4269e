"""The stages of a pipeline as text: the progress of each, and the result of the reduce."""

import json

from hypervisor.batches.pipeline_status import Overview, Reduced, Stage
from hypervisor.cli.output import BOLD, DIM, GREEN, RED, YELLOW, Line, cut, glyphs, joined, one_line
from hypervisor.queue.lifecycle import state_name
from hypervisor.queue.result import text_of

STYLES = {"done": GREEN, "failed": RED, "cancelled": YELLOW, "blocked": YELLOW, "review": YELLOW}
MAX_LINES = 40  # of what the reduce printed
MAX_RESULT_LENGTH = 4_000
WIDEST = 48


def stage_lines(overview: Overview, columns: int, answer: bool = True) -> list[Line]:
    """A line for each part, and below them the result of the reduce."""
    rows = [
        (f"stage {n}", stage.what, _stage_counts(stage))
        for n, stage in enumerate(overview.stages, 1)
    ]
    last = overview.reduce
    if last is not None:
        rows.append(("reduce", last.what, _of_reduce(last)))
    wide = max(len(name) for name, _, _ in rows)
    room = min(max(len(one_line(what)) for _, what, _ in rows), WIDEST, max(columns // 3, 12))
    lines: list[Line] = [[("", "")]]
    for name, what, spans in rows:
        shown = cut(one_line(what), room)
        lines.append([(f"  {name:<{wide}}  ", BOLD), (f"{shown:<{room}}  ", DIM), *spans])
    return lines + answer_of(overview) if answer else lines


def answer_of(overview: Overview) -> list[Line]:
    """The result of the reduce, below everything else."""
    if overview.reduce is None or overview.reduce.state != "done":
        return []
    return [[("", "")], *([(line, "")] for line in answer_lines(overview.reduce))]


def answer_lines(last: Reduced) -> list[str]:
    """The result of the reduce: its value, or its output, shortened to the end if long."""
    if last.result is not None:
        text = last.result if isinstance(last.result, str) else text_of(last.result, "summary")
        lines = (text or json.dumps(last.result, ensure_ascii=False)).splitlines()
    else:
        lines = last.output.splitlines()
    shown = [one_line(line[:MAX_RESULT_LENGTH]) for line in lines[-MAX_LINES:]]
    if len(lines) > MAX_LINES or len(last.output) >= 64 << 10:
        shown.append(f"  (only the end is shown; for all: hv logs {last.id})")
    return shown or [f"  the reduce printed nothing; see: hv show {last.id}"]


def _stage_counts(stage: Stage) -> Line:
    parts: Line = []
    for state, number in sorted(stage.states.items(), key=lambda pair: pair[0] != "done"):
        left = number - stage.stuck if state == "waiting" else number
        if left > 0:
            parts.append((f"{left:,} {state_name(state)}", STYLES.get(state, "")))
    if stage.stuck:
        parts.append((f"{stage.stuck:,} not started", YELLOW))
    return joined(parts) or [("no tasks yet", DIM)]


def _of_reduce(last: Reduced) -> Line:
    spans: Line = [(state_name(last.state), STYLES.get(last.state, ""))]
    if last.reason:
        spans.append((one_line(last.reason), STYLES.get(last.state, "")))
    return [
        *joined(spans),
        (f"{glyphs().dot}hv logs {last.id}" if last.state == "done" else "", DIM),
    ]
