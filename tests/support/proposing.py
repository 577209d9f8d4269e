"""A batch whose done tasks propose actions, and a folder of files that these change."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypervisor.queue.add import insert_tasks
from hypervisor.queue.context import Context
from hypervisor.queue.task import NewTask
from hypervisor.runs import sql as runs_sql
from hypervisor.runs.spec import spec_data
from hypervisor.store.database import Database, Row
from tests.support.specs import run_spec

Tree = dict[str, tuple[int, bytes | None, int]]


def left_over(store: Database) -> list[Row]:
    """Proposals that are not in any result."""
    return store.read(lambda s: s.rows("SELECT * FROM proposals"))


def propose(
    hv: Context, batch: str, folder: Path | str, results: Sequence[Any], **more: Any
) -> tuple[str, ...]:
    """Tasks of a batch run in `folder` that are done with these results."""
    from hypervisor.queue.claim import claim, complete

    hv.store.write(
        runs_sql.declare,
        batch,
        spec_data(run_spec(str(folder), ("true",), **more)),
        hv.actor,
        hv.now(),
    )
    known = len(results)
    new = [NewTask(f"item {n}", data={"item": str(n)}) for n in range(known)]
    ids = insert_tasks(hv, new, batch).ids
    leases = {lease.task.id: lease.token for lease in claim(hv, "tester", known, batch=batch)}
    for task, result in zip(ids, results, strict=True):
        complete(hv, leases[task], result=result)
    return ids


def result(*actions: dict[str, Any], category: str = "odds") -> dict[str, Any]:
    return {"category": category, "actions": list(actions)}


def tree(folder: Path) -> Tree:
    """Everything below a folder, but for the store: mode, content (None: no file), mtime of
    files."""
    found: Tree = {}
    for path, folders, files in os.walk(folder):
        if ".hypervisor" in folders:
            folders.remove(".hypervisor")
        for name in folders + files:
            full = Path(path, name)
            about = full.lstat()
            is_file = stat.S_ISREG(about.st_mode)
            found[str(full.relative_to(folder))] = (
                stat.S_IMODE(about.st_mode),
                full.read_bytes() if is_file else None,
                about.st_mtime_ns if is_file else 0,
            )
    return found
