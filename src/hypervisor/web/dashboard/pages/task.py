"""One task: what it is, its attempts, their output, its evidence, and deciding about it."""

from __future__ import annotations

import json
import shlex

from hypervisor.agents import answer as answering
from hypervisor.agents.prompt_preview import prompt_of
from hypervisor.agents.running_status import transcript
from hypervisor.agents.transcript_details import DetailedLine, detailed_transcript
from hypervisor.batches.command_line import command_line
from hypervisor.core.errors import HypervisorError
from hypervisor.core.records import NamedTuple
from hypervisor.git import review as git_review
from hypervisor.git.queue_status import failed_output, landed_tasks, merge_queue
from hypervisor.git.saved_work import diff, snapshots
from hypervisor.hive.finding import Known
from hypervisor.hive.recall import recall
from hypervisor.queue import steer
from hypervisor.queue.context import Context
from hypervisor.queue.dependencies import neighborhood
from hypervisor.queue.queries import end_of_log, events, show
from hypervisor.runs import control
from hypervisor.runs.output_window import Window, output_window, search_output
from hypervisor.runs.supervise import supervise
from hypervisor.web.dashboard import ansi
from hypervisor.web.dashboard.diffs import DiffLine, files_of, short_diff_lines
from hypervisor.web.dashboard.graphs import drawing
from hypervisor.web.dashboard.page import Action, Page, Request, Values

MAX_EVENTS = 200
MAX_SEARCHED = 5_000  # events, from the end of the log
MAX_TRANSCRIPT = 1 << 20  # bytes of an agent's transcript that are read from its end
MAX_ENTRIES = 400
MAX_FINDINGS = 8
MAX_SNAPSHOTS = 20


class Entry(NamedTuple):
    """A line of a transcript, with the change that it made."""

    shown: DetailedLine
    diff: tuple[DiffLine, ...]


def task_values(hv: Context, request: Request) -> Values:
    shown = show(hv, request.path["task"])
    task = shown.detail.task
    command = command_line(hv, task, shown.batch)
    spec = shown.batch.spec if shown.batch and isinstance(shown.batch.spec, dict) else {}
    return {
        "shown": shown,
        "task": task,
        "digest": git_review.review_digest(task),
        "command_line": shlex.join(command) if command else "",
        "prompt": prompt_of(hv, task, shown.batch),
        "data": json.dumps(task.data, indent=2, ensure_ascii=False) if task.data else "",
        "in_clone": spec.get("workspace") == "clone",
    }


def log(hv: Context, request: Request) -> Values:
    """A window of the output, or the lines that contain a text."""
    task, query = request.path["task"], request.query.get("q", "").strip()
    attempt = request.number("attempt") or None
    start = request.number("from") if "from" in request.query else None
    window = output_window(hv, task, attempt, start)
    values: dict[str, object] = {"window": window, "lines": [], "entries": [], "query": query}
    if query:
        values["matches"], values["is_complete"] = search_output(hv, task, query, window.attempt)
    elif request.query.get("raw") != "1" and (entries := _transcript(hv, task, window)):
        values["entries"] = entries
    else:
        values["lines"] = ansi.lines(window.text)
    return values


def _transcript(hv: Context, task: str, window: Window) -> list[Entry]:
    """What an agent did, in words; empty for a command."""
    try:
        source = transcript(hv, task, window.attempt)
    except HypervisorError:
        return []
    if not source.agent:
        return []
    tail = output_window(hv, task, window.attempt, most=MAX_TRANSCRIPT)
    entries = detailed_transcript(source.stream, tail.text.split("\n"))
    return [Entry(entry, short_diff_lines(entry.diff)) for entry in entries[-MAX_ENTRIES:]]


def changes(hv: Context, request: Request) -> Values:
    """What it changed in its clone of the repository."""
    number = request.number("snapshot") or None
    attempt = request.number("attempt") or None
    try:
        found = diff(hv, request.path["task"], attempt, snapshot=number)
    except HypervisorError as error:
        return {"files": [], "problem": str(error), "number": number}
    wanted = request.query.get("file", "")
    files = files_of(found.text, wanted, {f.path: (f.added, f.removed) for f in found.files})
    return {"files": files, "problem": "", "number": number}


def saved(hv: Context, request: Request) -> Values:
    """The snapshots of its workspace, newest first."""
    try:
        found = snapshots(hv, request.path["task"])
    except HypervisorError:
        found = []
    return {"snapshots": found[::-1][:MAX_SNAPSHOTS], "count": len(found)}


def merging(hv: Context, request: Request) -> Values:
    """Its place in the merge queue, or what became of its commits."""
    task = show(hv, request.path["task"]).detail.task
    lanes = merge_queue(hv) if task.state == "merging" else []
    places = [
        (lane, place)
        for lane in lanes
        for place, queued in enumerate(lane.tasks, 1)
        if queued.task == task.id
    ]
    return {
        "queued": places[0] if places else None,
        "landed": landed_tasks(hv, [task.id])[0],
        "verification": failed_output(hv, task),
    }


def dependencies(hv: Context, request: Request) -> Values:
    """The tasks around it."""
    found = neighborhood(hv, request.path["task"])
    return {"graph": drawing(found) if found else None}


def findings(hv: Context, request: Request) -> Values:
    """What it found, and what is known on its branch."""
    task = show(hv, request.path["task"]).detail.task
    own = recall(hv, task=task.id, limit=MAX_FINDINGS)
    of_branch = _known_on(hv, task.branch) if task.branch else ()
    seen = {known.finding.id for known in own}
    others = [known for known in of_branch if known.finding.id not in seen]
    return {"own": own, "others": others[:MAX_FINDINGS]}


def _known_on(hv: Context, branch: str) -> tuple[Known, ...]:
    try:
        return recall(hv, branch=branch, limit=2 * MAX_FINDINGS)
    except HypervisorError:  # no branch of this name
        return ()


def history(hv: Context, request: Request) -> Values:
    """Its newest events, as far as they are among the last of the log: there may be millions."""
    task_id = hv.resolve(request.path["task"])
    last = end_of_log(hv)
    read = events(hv, max(last - MAX_SEARCHED, 0), MAX_SEARCHED)
    found = [event for event in read if event.task == task_id]
    return {"events": found[::-1][:MAX_EVENTS]}


# Actions


def retry(hv: Context, request: Request) -> str:
    moved = steer.retry(hv, request.path["task"], request.form.get("reason", ""))
    supervise(hv)
    return f"{moved.task} is back in the queue"


def answer(hv: Context, request: Request) -> str:
    moved = answering.answer(hv, request.path["task"], request.form.get("text", ""))
    supervise(hv)
    return f"answered; {moved.task} continues"


def tell(hv: Context, request: Request) -> str:
    moved = answering.tell(hv, request.path["task"], request.form.get("text", ""))
    return f"noted; {moved.task} gets it with its next tool call, or in its next attempt"


def cancel(hv: Context, request: Request) -> str:
    moved = steer.cancel(hv, request.path["task"], request.form.get("reason", ""))
    if moved.state == "stopping":
        return f"stopping {moved.task}; then it is cancelled"
    return f"{moved.task} is cancelled"


def stop(hv: Context, request: Request) -> str:
    again = request.form.get("retry") == "1"
    moved = control.kill(hv, request.path["task"], request.form.get("reason", ""), again)
    return f"stopping {moved.task}"


def approve(hv: Context, request: Request) -> str:
    reason, shown = request.form.get("reason", ""), request.form.get("shown", "")
    moved = git_review.approve(hv, request.path["task"], reason, shown=shown)
    return f"{moved.task} is approved"


def reject(hv: Context, request: Request) -> str:
    reason, shown = request.form.get("reason", ""), request.form.get("shown", "")
    moved = git_review.reject(hv, request.path["task"], reason, shown=shown)
    return f"{moved.task} is rejected"


PAGES = (
    Page(
        "/tasks/{task}",
        "task",
        task_values,
        parts={
            "summary": lambda hv, request: {},
            "log": log,
            "changes": changes,
            "snapshots": saved,
            "merging": merging,
            "dependencies": dependencies,
            "findings": findings,
            "history": history,
        },
    ),
)
ACTIONS = (
    Action("/tasks/{task}/retry", retry),
    Action("/tasks/{task}/answer", answer),
    Action("/tasks/{task}/tell", tell),
    Action("/tasks/{task}/cancel", cancel),
    Action("/tasks/{task}/stop", stop),
    Action("/tasks/{task}/approve", approve),
    Action("/tasks/{task}/reject", reject),
)
