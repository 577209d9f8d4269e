"""Handing results on: a reduce task finds what came of the others in a file."""

from __future__ import annotations

import os

from hypervisor.domain.task import Task
from hypervisor.operations.context import Context

GATHER = "gather"  # in the data of a reduce task: the id of the batch whose results it gets
RESULTS = "results.jsonl"


def gather(hv: Context, task: Task) -> str:
    """Write the results that a reduce task is about, before it starts. Returns the path of the
    file, "" for any other task."""
    batch = task.data.get(GATHER) if isinstance(task.data, dict) else None
    if not isinstance(batch, str):
        return ""
    return hv.batch_files.write(hv.store.batch(batch).name, RESULTS, result_lines(hv, batch))


def results_path(hv: Context, name: str) -> str:
    """Where `gather` will write for the batch of that name; nothing is there yet."""
    return os.path.join(hv.batch_files.folder(name), RESULTS)


def result_lines(hv: Context, batch: str) -> str:
    """A line of JSON for each task of a batch: how it ended and what came of it."""
    import json

    from hypervisor.operations.run import reports

    return "".join(
        json.dumps(
            {"id": each.id, "title": each.title, "state": each.state, "result": each.result,
             "reason": each.reason}, ensure_ascii=False,
        ) + "\n"
        for each in reports(hv, batch)
    )  # fmt: skip
