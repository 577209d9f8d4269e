"""Running a command or a function for each of many items, from Python."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypedDict, Unpack

from hypervisor.batches.run_handle import Run
from hypervisor.batches.submit import submit
from hypervisor.core.errors import InvalidInput
from hypervisor.inputs.items import item_from_value, occurrences, task_for
from hypervisor.inputs.template import Item
from hypervisor.queue.context import Context
from hypervisor.queue.lane import Priority
from hypervisor.queue.sql import queries
from hypervisor.queue.task import NewTask
from hypervisor.resources.limits import Limits
from hypervisor.runs.functions.function_name import function_name
from hypervisor.runs.rerun import Rerun
from hypervisor.runs.spec import (
    CommandSpec,
    FunctionSpec,
    ResultFormat,
    RunSpec,
    Stdin,
    Strategy,
    WorkSpec,
    template_of,
)
from hypervisor.runs.supervise import supervise


class RunOptions(TypedDict, total=False):
    """Options of both `run` and `map`."""

    name: str  # of the batch; running it again skips items that are done
    ordered: bool  # iterate in the order of the items, not as they finish
    cwd: str | os.PathLike[str]
    workers: int
    retries: int
    limits: Limits
    strategy: Strategy
    type: str
    priority: Priority
    rerun: Rerun


def run(
    hv: Context,
    command: Sequence[str] | str,
    items: Iterable[Any],
    *,
    shell: bool = False,
    stdin: Stdin = "closed",
    result: ResultFormat = "none",
    **options: Unpack[RunOptions],
) -> Run:
    """Run a command for each item in the background; returns a `Run` with the results."""
    if isinstance(command, RunSpec):
        raise InvalidInput("run takes a command; for a RunSpec, use submit(spec, tasks, name).")
    if isinstance(command, str) and not shell:
        raise InvalidInput("the command is text: pass a list of words, or shell=True.")
    argv = (command,) if isinstance(command, str) else tuple(command)
    work = CommandSpec(argv, shell, stdin, result=result)
    program = argv[0].split()[0] if argv and argv[0].split() else ""
    return _start(hv, work, items, os.path.basename(program), options)


def map(
    hv: Context,
    function: Callable[[Any], Any] | str,
    items: Iterable[Any],
    *,
    python: str | None = None,
    **options: Unpack[RunOptions],
) -> Run:
    """Call a function with each item in other processes; returns a `Run` with the results.

    The function is one that can be imported, or its name as package.module:function. It runs
    with this interpreter, or another `python`. Items and results are values that JSON can hold.
    """
    name = function_name(function, _folder(options))
    return _start(hv, FunctionSpec(name, python or sys.executable), items, name, options)


def _start(
    hv: Context, work: WorkSpec, items: Iterable[Any], label: str, options: RunOptions
) -> Run:
    spec = RunSpec(
        _folder(options),
        work,
        workers=options.get("workers"),
        strategy=options.get("strategy", "auto"),
        limits=options.get("limits", Limits()),
    )
    values = list(items)
    tasks = list(_tasks(work, values, options))
    after = queries.end_of_log(hv.store)
    name = options.get("name") or _unique_name(label)
    submitted = submit(hv, spec, tasks, name, rerun=options.get("rerun", "changed"))
    if submitted.to_do:
        supervise(hv)
    by_key = {task.key or "": value for task, value in zip(tasks, values, strict=True)}
    return Run(hv, submitted, by_key, after=after, ordered=options.get("ordered", False))


def _tasks(work: WorkSpec, values: Sequence[Any], options: RunOptions) -> Iterator[NewTask]:
    base = NewTask(
        "",
        type=options.get("type", "run"),
        priority=options.get("priority", "medium"),
        retries=options.get("retries", 0),
    )
    for item, occurrence in occurrences(_items(work, values)):
        yield task_for(item, base, occurrence)


def _items(work: WorkSpec, values: Sequence[Any]) -> Iterator[Item]:
    """The numbered items. InvalidInput: the command cannot be made for one of them."""
    template = template_of(work) if isinstance(work, CommandSpec) and work.argv else None
    for number, value in enumerate(values, 1):
        try:
            item = item_from_value(value, number)
            if template is not None:
                template.check(None if item.columns is None else item.columns.keys())
                template.render(item)
        except InvalidInput as error:
            raise InvalidInput(f"item {number}: {error} Nothing was started.") from None
        yield item


def _folder(options: RunOptions) -> str:
    folder = os.path.abspath(options.get("cwd", "."))
    if not os.path.isdir(folder):
        raise InvalidInput(f"no such folder: {folder}")
    return folder


def _unique_name(label: str) -> str:
    safe = "".join(c if c.isalnum() or c in "._:" else "-" for c in label)[:40]
    return f"{safe}-{os.urandom(4).hex()}"
