"""Whole runs in one repository: a store, a supervisor, workers and a merger."""

from __future__ import annotations

import time
from contextlib import contextmanager
from pathlib import Path

from hypervisor.queue.task import NewTask
from hypervisor.runs.spec import CommandSpec, GitSpec, RunSpec
from hypervisor.selftest.repositories import Repo
from tests.support.python_runs import opened

DEADLINE = 120.0
ENDED = ("done", "failed", "cancelled", "review", "blocked")


@contextmanager
def runs(tmp_path, config=""):
    """A repository, a store outside of it, and a supervisor."""
    repo = Repo(tmp_path / "project")
    files: dict[str, str | None] = {f"f{n}.txt": f"line {n}\n" for n in range(8)}
    repo.commit(files | {"shared.txt": "start\n"}, "first")
    with opened(str(tmp_path / "store" / "store.db")) as hv:
        file = Path(hv.places.data, "config.toml")
        file.write_text(file.read_text() + config)
        yield repo, hv


def submit(hv, repo, script, items, name="edits", workers=4, data=None, **git):
    spec = RunSpec(
        str(repo.folder),
        CommandSpec(("sh", "-c", script.replace("{}", "$1"), "sh", "{}")),
        workers=workers,
        workspace="clone",
        git=GitSpec(**{"merge": "branch", **git}),
    )
    tasks = [
        NewTask(str(item), type="run", key=str(item), data={"item": str(item), **(data or {})})
        for item in items
    ]
    hv.submit(spec, tasks, name)
    hv.supervise()


def wait(hv, count, seconds=DEADLINE):
    """The tasks, once all have ended."""
    deadline = time.monotonic() + seconds
    while True:
        tasks = hv.list_tasks(limit=1000)
        if len(tasks) == count and all(task.state in ENDED for task in tasks):
            return {task.title: task for task in tasks}
        assert time.monotonic() < deadline, [(t.title, t.state, t.reason) for t in tasks]
        hv.supervise()
        time.sleep(0.2)
