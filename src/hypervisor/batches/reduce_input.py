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

from hypervisor.core.errors import InvalidInput
from hypervisor.queue.lease import parse_token
from hypervisor.queue.lifecycle import DONE, WAITING
from hypervisor.queue.sql import claims, queries
from hypervisor.store import settings

if TYPE_CHECKING:
    from hypervisor.inputs.template import Item
    from hypervisor.queue.context import Context
    from hypervisor.queue.lease import Lease
    from hypervisor.queue.task import Batch, Json, Task
    from hypervisor.runs.spec import RunSpec, TaskReport

GATHER = "gather"  # in the data of a reduce task: the id of the batch whose results it gets
FROM = "from"  # in the data of a later stage's task: the id of its task in the stage before
REDUCE = "reduce"  # the key of a reduce task in its batch
STAGE = "stage"  # … and which stage it is, the second being 2
GATHERED = "gathered "  # and a reduce task's id: a setting, the mark of what it was last given
GIVEN = ("result", "output")  # what a later stage's command can name beside the columns
RESULTS = "results.jsonl"
LONGEST_OUTPUT = 64 << 10


def gather(hv: Context, lease: Lease) -> Lease:
    """Write the results that a reduce task is about, before it starts, and let its item be that
    file: each host has it elsewhere. Any other claim is given back as it is."""
    task = lease.task
    batch = gathers(task)
    if not batch:
        return lease
    meant = hv.store.read(queries.batch, batch)
    known = list(_known(hv, batch))
    text = "".join(
        json.dumps(line | _printed(hv, meant, each), ensure_ascii=False) + "\n"
        for each, line in known
    )
    path = hv.batch_files.write(meant.name, RESULTS, text)
    mark = _mark(hv, task, known)
    hv.store.write(claims.set_under_claim, parse_token(lease.token), GATHERED + task.id, mark)
    return lease._replace(task=_about(task, path))


def item_for(hv: Context, lease: Lease, spec: RunSpec) -> Item:
    """What an attempt is given: the item of its task, with the results of other tasks in it."""
    from hypervisor.inputs.items import item_of

    task = gather(hv, lease).task
    return with_result(hv, task, item_of(task), spec)


def results_path(hv: Context, name: str) -> str:
    """Where `gather` will write for the batch of that name; nothing is there yet."""
    return os.path.join(hv.batch_files.folder(name), RESULTS)


def told_of(path: str) -> str:
    """What the text of a reduce task says of the file."""
    return f"The results: {path} (a line of JSON each)."


def is_new(hv: Context, task: Task) -> bool:
    """Whether a reduce task would be given, or told, anything but what it was last time. The store
    alone decides that: what was printed is kept on one host, and all must answer the same."""
    batch = gathers(task)
    if not batch:
        return False
    mark = _mark(hv, task, _known(hv, batch))  # takes its time: another host may gather meanwhile
    return hv.store.read(settings.setting, GATHERED + task.id) != mark


def gathers(task: Task) -> str:
    """The batch whose results it gets; in the data of any other task the word means nothing."""
    batch = task.data.get(GATHER) if isinstance(task.data, dict) else None
    return batch if isinstance(batch, str) and task.key == REDUCE else ""


def _about(task: Task, path: str) -> Task:
    assert isinstance(task.data, dict)
    before = str(task.data.get("item"))
    body = task.body.replace(told_of(before), told_of(path))
    return task._replace(body=body, data={**task.data, "item": path})


def with_result(hv: Context, task: Task, item: Item, spec: RunSpec) -> Item:
    """The item as a later stage sees it: with `result`, what came of the stage before, and
    `output`, the file with what that printed. What no argument can hold is never cut: the
    item is refused if the stage names it."""
    from hypervisor.inputs.template import LONGEST_WORD

    before = task.data.get(FROM) if isinstance(task.data, dict) else None
    if not isinstance(before, str):
        return item
    done = hv.store.read(queries.task, before)
    result, size = _came_of(hv, done, LONGEST_WORD)
    if size > LONGEST_WORD and _names_result(spec):
        raise InvalidInput(
            f"{{result}} is too long for one argument: {size:,} bytes, at most {LONGEST_WORD:,}. "
            "Use {output}, the file with what the stage before printed."
        )
    columns = {**(item.columns or {"item": item.text}), "result": result}
    if result is None:
        del columns["result"]  # a row's own, too: it would be taken for what came of it
    columns["output"] = hv.outputs.as_file(done.id, done.attempts)
    return item._replace(columns=columns)


def _came_of(hv: Context, done: Task, longest: int) -> tuple[Json, int]:
    """What came of a task, and how many bytes it has as an argument. What it printed is not even
    read if it is longer than that."""
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


def _known(hv: Context, batch: str) -> Iterator[tuple[TaskReport, dict[str, Any]]]:
    """Each task of a batch with its line, as far as the store knows it."""
    from hypervisor.runs.run import reports

    return ((each, _line(hv, each)) for each in reports(hv, batch))


def _line(hv: Context, each: TaskReport) -> dict[str, Any]:
    line: dict[str, Any] = {"id": each.id, "title": each.title}
    task = None
    for task in _stages_back(hv, each):
        line[STAGE] = _stage(task)
    state, reason = (each.state, each.reason) if task is None else (task.state, task.reason)
    return line | {"state": state, "result": each.result, "reason": reason}


def _printed(hv: Context, batch: Batch, each: TaskReport) -> dict[str, str]:
    if each.result is None and isinstance(batch.spec, dict) and batch.spec.get("command"):
        return {"output": printed(hv, each.id, each.attempts)}
    return {}


def _stages_back(hv: Context, each: TaskReport) -> Iterator[Task]:
    """From a task that never had its turn back to the one of its item that did not get through."""
    state, task = each.state, each.id
    while state == WAITING:
        data = hv.store.read(queries.task, task).data
        before = data.get(FROM) if isinstance(data, dict) else None
        if not isinstance(before, str):
            return
        found = hv.store.read(queries.task, before)
        yield found
        state, task = found.state, before


def _stage(task: Task) -> int:
    found = task.data.get(STAGE) if isinstance(task.data, dict) else None
    return found if isinstance(found, int) else 1


def printed(hv: Context, task: str, attempt: int, most: int = LONGEST_OUTPUT) -> str:
    """What an attempt printed; of much, the end."""
    size = hv.outputs.size(task, attempt) or 0
    if not size:
        return ""
    return hv.outputs.read(task, attempt, max(size - most, 0), most).decode("utf-8", "replace")


def _mark(hv: Context, task: Task, known: Iterable[tuple[TaskReport, dict[str, Any]]]) -> str:
    """Stands for the results and for what is to be done with them. Where what was printed is the
    result, the attempt stands for it; a task that fails again as before brings nothing new."""
    from hashlib import blake2b

    spec: Json = hv.store.read(queries.batch, task.batch).spec
    told = spec if isinstance(spec, dict) else {}
    how = [told.get(name) for name in ("cwd", "command", "function", "agent", "prompt")]
    mark = blake2b(json.dumps([how, task.title]).encode(), digest_size=16)
    for each, line in known:
        stands_for = each.attempts if each.state == DONE and each.result is None else 0
        mark.update(json.dumps([line, stands_for]).encode())
    return mark.hexdigest()
