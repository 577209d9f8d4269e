"""Batches, and one batch: how far it is, what failed, and steering it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from hypervisor.batches.pipeline_status import pattern, what_of
from hypervisor.batches.review import chunks
from hypervisor.batches.summary import MAX_COUNTED, categories
from hypervisor.core.errors import InvalidInput
from hypervisor.core.text import pluralize
from hypervisor.learning.learn import learned_about
from hypervisor.learning.record import Work
from hypervisor.monitoring.failures import failures as grouped_failures
from hypervisor.monitoring.figures import figures as batch_figures
from hypervisor.monitoring.status import attempts, quick_status
from hypervisor.queue import bulk, steer
from hypervisor.queue.context import Context, batch_id
from hypervisor.queue.counts import batch_counts
from hypervisor.queue.lifecycle import state_name
from hypervisor.queue.pause import BATCH
from hypervisor.queue.queries import batches, list_tasks
from hypervisor.queue.steer import Moved
from hypervisor.runs import control
from hypervisor.runs.result_rows import result_rows
from hypervisor.runs.results import results
from hypervisor.runs.supervise import continue_runs, supervise
from hypervisor.web.dashboard.page import Action, Page, Raw, Request, Values, nothing
from hypervisor.web.report.gains import curves
from hypervisor.web.report.stages import answer as answer_lines
from hypervisor.web.report.stages import rows as pipeline_rows

MAX_LISTED = 100
LINES_AT_ONCE = 500
AGAIN = ("done", "failed", "blocked", "cancelled")
FINISHED = ("done", "failed", "cancelled", "blocked")


def listed(hv: Context, request: Request) -> Values:
    archived = request.query.get("archived") == "1"
    found = batches(hv, MAX_LISTED, archived)
    counts = batch_counts(hv, [batch.id for batch in found])
    return {
        "rows": [(batch, counts[batch.id], what_of(batch)) for batch in found],
        "archived": archived,
        "most": MAX_LISTED,
    }


def batch_values(hv: Context, request: Request) -> Values:
    current = quick_status(hv, request.path["batch"], request.now)
    assert current.batch is not None
    return {
        "batch": current.batch,
        "status": current,
        "what": what_of(current.batch),
        "paused": next((p for p in current.pauses if p.scope == BATCH), None),
        "again": " ".join(f"--state {state}" for state in AGAIN),
        "left": sum(n for s, n in current.stats.states.items() if s not in FINISHED),
    }


def figures(hv: Context, request: Request) -> Values:
    return {"figures": batch_figures(hv, request.path["batch"], request.now)}


def running(hv: Context, request: Request) -> Values:
    return {"attempts": attempts(hv, request.path["batch"])}


def failed(hv: Context, request: Request) -> Values:
    return {"failures": grouped_failures(hv, request.path["batch"])}


def chunk_list(hv: Context, request: Request) -> Values:
    return {"chunks": chunks(hv, request.path["batch"])[:MAX_LISTED]}


def stages(hv: Context, request: Request) -> Values:
    found = pattern(hv, request.path["batch"])
    if found is None:
        return {"pattern": None}
    rows, answer = pipeline_rows(found), answer_lines(found.reduce)
    return {"pattern": found, "rows": rows, "answer": answer}


def category_counts(hv: Context, request: Request) -> Values:
    return {"categories": categories(hv, request.path["batch"]), "most": MAX_COUNTED}


def learned(hv: Context, request: Request) -> Values:
    """What is known about running its types of task in parallel."""
    current = quick_status(hv, request.path["batch"], request.now)
    spec = current.batch.spec if current.batch else None
    if not isinstance(spec, dict):
        return {"curves": []}
    known = learned_about(hv, Work.of_batch(spec), current.stats.types)
    return {"curves": list(curves(known))}


def recent(hv: Context, request: Request) -> Values:
    return {"tasks": list_tasks(hv, (), request.path["batch"], limit=20)}


# Exports: the same as `hv results --format`


def as_jsonl(hv: Context, request: Request) -> tuple[str, Iterator[bytes]]:
    rows = results(hv, _id(hv, request))
    lines = (json.dumps(row._asdict(), ensure_ascii=False) + "\n" for row in rows)
    return "application/jsonl", _pieces(lines)


def as_csv(hv: Context, request: Request) -> tuple[str, Iterator[bytes]]:
    return "text/csv", _pieces(map(_csv_line, result_rows(hv, _id(hv, request))))


def _csv_line(row: Sequence[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(row)
    return line.getvalue()


def _pieces(lines: Iterator[str]) -> Iterator[bytes]:
    """Every piece is a call of another thread, so a piece is many lines."""
    while piece := "".join(islice(lines, LINES_AT_ONCE)):
        yield piece.encode("utf-8", "replace")  # file names may be anything


def _id(hv: Context, request: Request) -> str:
    id = batch_id(hv, request.path["batch"])
    assert id is not None
    return id


# Actions


def pause(hv: Context, request: Request) -> str:
    if not control.pause(hv, request.path["batch"], reason=request.form.get("reason", "")):
        return "already paused; nothing was changed"
    return "paused: running attempts finish, nothing new starts"


def resume(hv: Context, request: Request) -> str:
    resumed = control.resume(hv, request.path["batch"])
    supervise(hv)
    return "resumed" if resumed else "not paused any more; nothing was changed"


def scale(hv: Context, request: Request) -> str:
    text = request.form.get("workers", "").strip()
    workers = None if text in ("", "auto") else request.number("workers")
    control.scale(hv, workers, request.path["batch"])
    return (
        f"at most {pluralize(workers, 'worker')}" if workers is not None else "workers: automatic"
    )


def retry(hv: Context, request: Request) -> str:
    moved, text = _change(hv, request, bulk.RETRIED, steer.retry)
    continue_runs(hv, [task.task for task in moved])
    return text


def again(hv: Context, request: Request) -> str:
    moved, text = _change(hv, request, AGAIN, steer.retry)
    continue_runs(hv, [task.task for task in moved])
    return text


def start(hv: Context, request: Request) -> str:
    supervise(hv)
    return "a supervisor is running: tasks that are ready start"


def cancel(hv: Context, request: Request) -> str:
    _, text = _change(hv, request, bulk.CANCELLED, steer.cancel)
    return text


def _change(
    hv: Context, request: Request, states: Sequence[str], act: Callable[..., Moved]
) -> tuple[list[Moved], str]:
    """The tasks that were changed, and a sentence about them and those that were not."""
    tasks = bulk.oldest_first(hv, states, request.path["batch"])
    answers = list(bulk.change(hv, tasks, act, request.form.get("reason", "")))
    moved = [answer for answer in answers if isinstance(answer, Moved)]
    refused = [answer for answer in answers if isinstance(answer, bulk.Refused)]
    if refused and not moved:
        raise refused[0].error
    if not moved:
        wanted = ", ".join(map(state_name, states))
        raise InvalidInput(f"no task of this batch is {wanted}; nothing was changed")
    text = bulk.counted(moved)
    if refused:
        text += f"; {pluralize(len(refused), 'task')} not changed: {refused[0].error}"
    return moved, text


PAGES = (
    Page("/batches", "batches", parts={"list": listed}),
    Page(
        "/batches/{batch}",
        "batch",
        batch_values,
        parts={
            "actions": nothing,
            "progress": nothing,
            "figures": figures,
            "running": running,
            "failed": failed,
            "chunks": chunk_list,
            "stages": stages,
            "categories": category_counts,
            "learned": learned,
            "recent": recent,
        },
    ),
)
ACTIONS = (
    Action("/batches/{batch}/pause", pause),
    Action("/batches/{batch}/resume", resume),
    Action("/batches/{batch}/scale", scale),
    Action("/batches/{batch}/retry", retry),
    Action("/batches/{batch}/again", again),
    Action("/batches/{batch}/start", start),
    Action("/batches/{batch}/cancel", cancel),
)
RAW = (
    Raw("/batches/{batch}/results.jsonl", as_jsonl),
    Raw("/batches/{batch}/results.csv", as_csv),
)
