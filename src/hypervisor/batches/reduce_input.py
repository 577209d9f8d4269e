"""Passes results on: to the next stage of an item, and all of them, in a file, to a reduce task.

A line of that file is an object: `id`, `title`, `state`, `result`, `reason` and, for a command
without a result, its `output`. With several stages, `stage` is the last one that the item reached.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from hypervisor.batches.pipeline_names import REDUCE
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

# In the data of tasks:
REDUCES = "gather"  # of a reduce task: the id of the batch whose results it gets
PREVIOUS = "from"  # of a later stage's task: the id of its task in the previous stage …
STAGE = "stage"  # … and the number of the stage, from 2
RESULTS = "results.jsonl"
MAX_OUTPUT_LENGTH = 64 << 10


def write_reduce_input(hv: Context, lease: Lease) -> Lease:
    """Write the results for a reduce task before it starts, and set its item to that file, whose
    path depends on the host. Any other lease is returned unchanged."""
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
    """The item for an attempt, with the results of the previous stage."""
    from hypervisor.inputs.items import item_of

    task = write_reduce_input(hv, lease).task
    return with_result(hv, task, item_of(task), spec)


def results_path(hv: Context, name: str) -> str:
    """The path of the file that `write_reduce_input` writes."""
    return os.path.join(hv.batch_files.folder(name), RESULTS)


def mention(path: str) -> str:
    """The body of a reduce task, which mentions the file."""
    return f"The results: {path} (one line of JSON each)."


def has_new_input(hv: Context, task: Task) -> bool:
    """Whether a reduce task would get different input, or different work, than last time. Only the
    store counts: outputs are kept on one host, and all hosts must decide alike."""
    batch = reduced_batch(task)
    if not batch:
        return False
    digest = _digest(hv, task, _lines(hv, batch))  # first: another host may write at the same time
    return hv.store.read(pipelines.reduce_input, task.id) != digest


def reduced_batch(task: Task) -> str:
    """The batch whose results a reduce task gets; None for any other task."""
    batch = _data(task).get(REDUCES)
    return batch if isinstance(batch, str) and task.key == REDUCE else ""


def with_result(hv: Context, task: Task, item: Item, spec: RunSpec) -> Item:
    """The item of a later stage, with `result`, the result of the previous stage, and `output`, the
    file with its output. A result that is too long for an argument is not cut: the item is refused
    if the stage uses it."""
    from hypervisor.inputs.template import MAX_WORD_LENGTH

    previous = _data(task).get(PREVIOUS)
    if not isinstance(previous, str):
        return item
    done = hv.store.read(queries.task, previous)
    if _is_incomplete(hv, done):
        return _without_output(item, done, spec)
    result, size = _result_of(hv, done, MAX_WORD_LENGTH)
    if size > MAX_WORD_LENGTH and _names(spec, "result"):
        raise InvalidInput(
            f"{{result}} is too long for one argument: {size:,} bytes (maximum "
            f"{MAX_WORD_LENGTH:,}). Use {{output}}, the file with the output of the previous stage."
        )
    columns = {**(item.columns or {"item": item.text}), "result": result}
    if result is None:
        del columns["result"]  # a row's own, too: it would be taken for the stage's
    columns["output"] = hv.outputs.as_file(done.id, done.attempts)
    return item._replace(columns=columns)


def printed(hv: Context, task: str, attempt: int, most: int = MAX_OUTPUT_LENGTH) -> str:
    """The output of an attempt; if it is long, the end of it."""
    size = hv.outputs.size(task, attempt) or 0
    if not size:
        return ""
    return hv.outputs.read(task, attempt, max(size - most, 0), most).decode("utf-8", "replace")


def _with_path(task: Task, path: str) -> Task:
    data = _data(task)
    body = task.body.replace(mention(str(data.get("item"))), mention(path))
    return task._replace(body=body, data={**data, "item": path})


def _result_of(hv: Context, done: Task, longest: int) -> tuple[Json, int]:
    """A task's result or output, and its size in bytes as an argument. Output that is too long is
    not read."""
    from hypervisor.inputs.template import as_text

    result = done.result
    if result is None:
        size = hv.outputs.size(done.id, done.attempts) or 0
        if size > longest + 1:  # without the final newline
            return None, size
        result = printed(hv, done.id, done.attempts, longest + 1).removesuffix("\n")
    return result, len(as_text(result).encode())


def _is_incomplete(hv: Context, done: Task) -> bool:
    from hypervisor.runs.results import incomplete_outputs

    return bool(incomplete_outputs(hv, {done.id: done.attempts}))


def _without_output(item: Item, done: Task, spec: RunSpec) -> Item:
    """The item of a later stage if the output is incomplete; refused if the stage uses it."""
    columns = {**(item.columns or {"item": item.text}), "result": done.result}
    missing = ["output"] if done.result is not None else ["output", "result"]
    for name in missing:
        columns.pop(name, None)  # a row's own, too: it would be taken for the stage's
        if _names(spec, name):
            raise InvalidInput(
                f"{{{name}}} is incomplete: only part of the output of the previous stage is kept "
                "on this host. Raise `keep_each` (or, if it ran on another host, set `store`) "
                "under [outputs] in config.toml (`hv config path` prints its path), or have the "
                "previous stage write a file, then run it again with --again."
            )
    return item._replace(columns=columns)


def _names(spec: RunSpec, column: str) -> bool:
    from hypervisor.runs.spec import template_of

    if spec.command:
        return column in template_of(spec.command).names
    return spec.agent is not None and f"{{{column}}}" in spec.agent.prompt


def _lines(hv: Context, batch: str) -> Iterator[tuple[TaskReport, dict[str, Any]]]:
    """Each task of a batch with its line, without outputs."""
    from hypervisor.runs.results import reports

    for report in reports(hv, batch):
        line: dict[str, Any] = {"id": report.id, "title": report.title}
        state, reason = report.state, report.reason
        for task in _stages_back(hv, report):
            stage = _data(task).get(STAGE)
            line[STAGE] = stage if isinstance(stage, int) else 1
            state, reason = task.state, task.reason
        yield report, line | {"state": state, "result": report.result, "reason": reason}


def _stages_back(hv: Context, report: TaskReport) -> Iterator[Task]:
    """From a task that never ran back to the stage in which its item did not succeed."""
    state, task_id = report.state, report.id
    while state == WAITING:
        previous = _data(hv.store.read(queries.task, task_id)).get(PREVIOUS)
        if not isinstance(previous, str):
            return
        task = hv.store.read(queries.task, previous)
        yield task
        state, task_id = task.state, task.id


def _digest(hv: Context, task: Task, lines: Iterable[tuple[TaskReport, dict[str, Any]]]) -> str:
    """A digest of the results and of the reduce's work. For outputs, the attempt number is used
    instead; a task that fails again in the same way changes nothing."""
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
