"""Handing results on: to the next stage of an item, and to a reduce task all of them in a file.

A line of that file is an object: `id`, `title`, `state`, `result`, `reason`, and of a command
without a result the `output`, what it printed. With several stages, `stage` is the one that
the item came to.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from hypervisor.batches.sql import pipelines
from hypervisor.core.errors import InvalidInput
from hypervisor.queue.lease import parse_token
from hypervisor.queue.lifecycle import DONE, WAITING
from hypervisor.queue.sql import queries

if TYPE_CHECKING:
    from hypervisor.inputs.template import Item
    from hypervisor.queue.context import Context
    from hypervisor.queue.lease import Lease
    from hypervisor.queue.task import Json, Task
    from hypervisor.runs.spec import RunSpec, TaskReport

REDUCE = "reduce"  # the key of a reduce task in its batch
# In the data of tasks:
REDUCES = "gather"  # of a reduce task: the id of the batch whose results it gets
PREVIOUS = "from"  # of a later stage's task: the id of its task in the stage before …
STAGE = "stage"  # … and which stage it is, the second being 2
RESULTS = "results.jsonl"
LONGEST_OUTPUT = 64 << 10


def write_reduce_input(hv: Context, lease: Lease) -> Lease:
    """Write the results that a reduce task is about, before it starts, and let its item be that
    file: each host has it elsewhere. Any other claim is returned as it is."""
    task = lease.task
    batch_id = reduced_batch(task)
    if not batch_id:
        return lease
    batch = hv.store.read(queries.batch, batch_id)
    is_command = isinstance(batch.spec, dict) and bool(batch.spec.get("command"))
    lines = list(_lines(hv, batch_id))
    text = ""
    for report, line in lines:
        if is_command and report.result is None:
            line = line | {"output": printed(hv, report.id, report.attempts)}
        text += json.dumps(line, ensure_ascii=False) + "\n"
    path = hv.batch_files.write(batch.name, RESULTS, text)
    digest = _digest(hv, task, lines)
    hv.store.write(pipelines.set_reduce_input_under_claim, parse_token(lease.token), digest)
    return lease._replace(task=_with_path(task, path))


def item_for(hv: Context, lease: Lease, spec: RunSpec) -> Item:
    """What an attempt is given: the item of its task, with the results of other tasks in it."""
    from hypervisor.inputs.items import item_of

    task = write_reduce_input(hv, lease).task
    return with_result(hv, task, item_of(task), spec)


def results_path(hv: Context, name: str) -> str:
    """Where `write_reduce_input` will write for the batch of that name; nothing is there yet."""
    return os.path.join(hv.batch_files.folder(name), RESULTS)


def mention(path: str) -> str:
    """What the text of a reduce task says about the file."""
    return f"The results: {path} (a line of JSON each)."


def has_new_input(hv: Context, task: Task) -> bool:
    """Whether a reduce task would be given, or asked, anything but what it was last time. Only the
    store decides that: printed output is kept on one host, and all must answer the same."""
    batch = reduced_batch(task)
    if not batch:
        return False
    digest = _digest(hv, task, _lines(hv, batch))  # first: another host may write meanwhile
    return hv.store.read(pipelines.reduce_input, task.id) != digest


def reduced_batch(task: Task) -> str:
    """The batch whose results it gets; in the data of any other task the word means nothing."""
    batch = _data(task).get(REDUCES)
    return batch if isinstance(batch, str) and task.key == REDUCE else ""


def with_result(hv: Context, task: Task, item: Item, spec: RunSpec) -> Item:
    """The item as a later stage sees it: with `result`, what came of the stage before, and
    `output`, the file with what that printed. What no argument can hold is never cut: the
    item is refused if the stage names it."""
    from hypervisor.inputs.template import LONGEST_WORD

    previous = _data(task).get(PREVIOUS)
    if not isinstance(previous, str):
        return item
    done = hv.store.read(queries.task, previous)
    result, size = _result_of(hv, done, LONGEST_WORD)
    if size > LONGEST_WORD and _names_result(spec):
        raise InvalidInput(
            f"{{result}} is too long for one argument: {size:,} bytes, at most {LONGEST_WORD:,}. "
            "Use {output}, the file with what the stage before printed."
        )
    columns = {**(item.columns or {"item": item.text}), "result": result}
    if result is None:
        del columns["result"]  # a row's own, too: it would be taken for the stage's
    columns["output"] = hv.outputs.as_file(done.id, done.attempts)
    return item._replace(columns=columns)


def printed(hv: Context, task: str, attempt: int, most: int = LONGEST_OUTPUT) -> str:
    """What an attempt printed; if that is long, the end of it."""
    size = hv.outputs.size(task, attempt) or 0
    if not size:
        return ""
    return hv.outputs.read(task, attempt, max(size - most, 0), most).decode("utf-8", "replace")


def _with_path(task: Task, path: str) -> Task:
    data = _data(task)
    body = task.body.replace(mention(str(data.get("item"))), mention(path))
    return task._replace(body=body, data={**data, "item": path})


def _result_of(hv: Context, done: Task, longest: int) -> tuple[Json, int]:
    """A task's result, or what it printed, and its size in bytes as an argument. Output that is
    longer than that is not even read."""
    from hypervisor.inputs.template import as_text

    result = done.result
    if result is None:
        size = hv.outputs.size(done.id, done.attempts) or 0
        if size > longest + 1:  # the last line break does not count
            return None, size
        result = printed(hv, done.id, done.attempts, longest + 1).removesuffix("\n")
    return result, len(as_text(result).encode())


def _names_result(spec: RunSpec) -> bool:
    from hypervisor.runs.spec import template_of

    if spec.command:
        return "result" in template_of(spec).names
    return "{result}" in spec.prompt


def _lines(hv: Context, batch: str) -> Iterator[tuple[TaskReport, dict[str, Any]]]:
    """Each task of a batch with its line, as far as the store knows it."""
    from hypervisor.runs.run import reports

    for report in reports(hv, batch):
        line: dict[str, Any] = {"id": report.id, "title": report.title}
        state, reason = report.state, report.reason
        for task in _stages_back(hv, report):
            stage = _data(task).get(STAGE)
            line[STAGE] = stage if isinstance(stage, int) else 1
            state, reason = task.state, task.reason
        yield report, line | {"state": state, "result": report.result, "reason": reason}


def _stages_back(hv: Context, report: TaskReport) -> Iterator[Task]:
    """From a task that never ran back to the one of its item that did not succeed."""
    state, task_id = report.state, report.id
    while state == WAITING:
        previous = _data(hv.store.read(queries.task, task_id)).get(PREVIOUS)
        if not isinstance(previous, str):
            return
        task = hv.store.read(queries.task, previous)
        yield task
        state, task_id = task.state, task.id


def _digest(hv: Context, task: Task, lines: Iterable[tuple[TaskReport, dict[str, Any]]]) -> str:
    """Of the results and of what is to be done with them. Where what was printed is the result,
    the attempt stands for it; a task that fails again as before brings nothing new."""
    from hashlib import blake2b

    spec: Json = hv.store.read(queries.batch, task.batch).spec
    fields = spec if isinstance(spec, dict) else {}
    program = [fields.get(name) for name in ("cwd", "command", "function", "agent", "prompt")]
    digest = blake2b(json.dumps([program, task.title]).encode(), digest_size=16)
    for report, line in lines:
        attempt = report.attempts if report.state == DONE and report.result is None else 0
        digest.update(json.dumps([line, attempt]).encode())
    return digest.hexdigest()


def _data(task: Task) -> dict[str, Any]:
    return task.data if isinstance(task.data, dict) else {}
