"""Handing results on: to the next stage of an item, and to a reduce task all of them in a file.

A line of that file is an object: `id`, `title`, `state`, `result`, `reason`, and of a command
without a result the `output`, what it printed. With several stages, `stage` is the one that
the item came to.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hypervisor.domain.lifecycle import WAITING

if TYPE_CHECKING:
    from hypervisor.domain.run import TaskReport
    from hypervisor.domain.task import Batch, Json, Task
    from hypervisor.domain.template import Item
    from hypervisor.operations.context import Context

GATHER = "gather"  # in the data of a reduce task: the id of the batch whose results it gets
FROM = "from"  # in the data of a later stage's task: the id of its task in the stage before
STAGE = "stage"  # … and which stage it is, the second being 2
GATHERED = "gathered "  # and a reduce task's id: a setting, the mark of what it was last given
GIVEN = ("result", "output")  # what a later stage's command can name beside the columns
RESULTS = "results.jsonl"
LONGEST_OUTPUT = 64 << 10


def gather(hv: Context, task: Task) -> str:
    """Write the results that a reduce task is about, before it starts. Returns the path of the
    file, "" for any other task."""
    batch = task.data.get(GATHER) if isinstance(task.data, dict) else None
    if not isinstance(batch, str):
        return ""
    text = result_lines(hv, batch)
    path = hv.batch_files.write(hv.store.batch(batch).name, RESULTS, text)
    hv.store.set(GATHERED + task.id, _mark(hv, task, text))
    return path


def results_path(hv: Context, name: str) -> str:
    """Where `gather` will write for the batch of that name; nothing is there yet."""
    return os.path.join(hv.batch_files.folder(name), RESULTS)


def is_new(hv: Context, task: Task) -> bool:
    """Whether a reduce task would be given, or told, anything but what it was last time."""
    last = hv.store.setting(GATHERED + task.id)
    batch = task.data.get(GATHER) if isinstance(task.data, dict) else None
    return isinstance(batch, str) and last != _mark(hv, task, result_lines(hv, batch))


def result_lines(hv: Context, batch: str) -> str:
    """A line of JSON for each task of a batch: how it ended and what came of it."""
    from hypervisor.operations.run import reports

    meant = hv.store.batch(batch)
    lines = (_line(hv, meant, each) for each in reports(hv, batch))
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def with_result(hv: Context, task: Task, item: Item) -> Item:
    """The item as a later stage sees it: with `result`, what came of the stage before, and
    `output`, the file with what that printed."""
    before = task.data.get(FROM) if isinstance(task.data, dict) else None
    if not isinstance(before, str):
        return item
    done = hv.store.task(before)
    result = done.result
    if result is None:
        result = printed(hv, done.id, done.attempts).removesuffix("\n")
    own = item.columns or {"item": item.text}
    path = hv.outputs.path(done.id, done.attempts)
    return item._replace(columns={**own, "result": result, "output": path})


def _line(hv: Context, batch: Batch, each: TaskReport) -> dict[str, Any]:
    line: dict[str, Any] = {"id": each.id, "title": each.title}
    task = None
    for task in _stages_back(hv, each):
        line[STAGE] = _stage(task)
    state, reason = (each.state, each.reason) if task is None else (task.state, task.reason)
    line |= {"state": state, "result": each.result, "reason": reason}
    if each.result is None and isinstance(batch.spec, dict) and batch.spec.get("command"):
        line["output"] = printed(hv, each.id, each.attempts)
    return line


def _stages_back(hv: Context, each: TaskReport) -> Iterator[Task]:
    """From a task that never had its turn back to the one of its item that did not get through."""
    state, task = each.state, each.id
    while state == WAITING:
        data = hv.store.task(task).data
        before = data.get(FROM) if isinstance(data, dict) else None
        if not isinstance(before, str):
            return
        found = hv.store.task(before)
        yield found
        state, task = found.state, before


def _stage(task: Task) -> int:
    found = task.data.get(STAGE) if isinstance(task.data, dict) else None
    return found if isinstance(found, int) else 1


def printed(hv: Context, task: str, attempt: int) -> str:
    """What an attempt printed; of much, the end."""
    size = hv.outputs.size(task, attempt) or 0
    if not size:
        return ""
    start = max(size - LONGEST_OUTPUT, 0)
    return hv.outputs.read(task, attempt, start, LONGEST_OUTPUT).decode("utf-8", "replace")


def _mark(hv: Context, task: Task, text: str) -> str:
    """Stands for the results and for what is to be done with them."""
    from hashlib import blake2b

    spec: Json = hv.store.batch(task.batch).spec
    told = spec if isinstance(spec, dict) else {}
    how = [told.get(name) for name in ("cwd", "command", "function", "agent", "prompt")]
    whole = json.dumps([how, task.title, text]).encode()
    return blake2b(whole, digest_size=16).hexdigest()
