"""Deleting finished batches, with their tasks, attempts, outputs and files.

First it is written down that the deletion has begun; from then on nothing is added. Then a few
tasks at a time go: their files first, so that a killed deletion can be repeated to its end.
"""

import shutil
import time
from collections.abc import Iterator, Sequence

from hypervisor.batches.archive import refuse_unfinished, whole_pipeline
from hypervisor.batches.sql import removal
from hypervisor.core.errors import WrongState
from hypervisor.core.records import NamedTuple
from hypervisor.core.text import pluralize
from hypervisor.queue.context import Context
from hypervisor.queue.task import Batch
from hypervisor.runs.spec import Output

SLICE = 200  # tasks in one transaction, which takes some 20 ms
LEAVING = 3.0  # seconds; a worker that has nothing left to do leaves after one


class Deleted(NamedTuple):
    """What `delete_batch` deleted (or would, in a dry run) and what it kept."""

    batches: tuple[str, ...]
    tasks: int
    attempts: int
    outputs: int
    bytes: int
    kept_receipts: int
    kept_outputs: int = 0  # that could not be deleted
    applied: int = 0  # changes that can no longer be undone


def delete_batch(hv: Context, batch: str, dry_run: bool = False, now: int | None = None) -> Deleted:
    """Delete a finished batch, or pipeline, with its tasks, attempts, outputs and files.

    Its events, its receipts and what agents cost are kept. Repeat it if it was interrupted."""
    whole = whole_pipeline(hv, batch)
    for part in whole:
        _refuse(part.name, hv.store.read(removal.obstacles, part.id))
    contents = [hv.store.read(removal.content, part.id) for part in whole]
    if not dry_run:
        _wait_for_workers(hv, whole)
        for part in whole:  # all, before the first is gone: what was a pipeline goes as one
            hv.store.write(removal.begin, part.id, part.name, hv.actor, hv.at(now))
    outputs = [_delete_tasks(hv, part, dry_run) for part in whole]
    if not dry_run:
        # The first last: its name stands for the whole pipeline, should this be interrupted.
        for part, content in reversed(list(zip(whole, contents, strict=True))):
            _finish(hv, part, content, hv.at(now))
    return Deleted(
        tuple(part.name for part in whole),
        sum(content.tasks for content in contents),
        sum(content.attempts for content in contents),
        sum(len(found) for found, _ in outputs),
        sum(output.size for found, _ in outputs for output in found),
        sum(content.receipts for content in contents),
        sum(left for _, left in outputs),
        sum(content.applied for content in contents),
    )


def _refuse(name: str, obstacles: removal.Obstacles) -> None:
    refuse_unfinished(name, obstacles.unfinished, "delete")
    if obstacles.waiting_for:
        raise WrongState(
            f"cannot delete {name}: task {obstacles.waiting_for} waits for one of its tasks. "
            f"Nothing was changed; `hv cancel {obstacles.waiting_for}` cancels it."
        )
    if obstacles.open_actions:
        raise WrongState(
            f"cannot delete {name}: {pluralize(obstacles.open_actions, 'approved change')} not "
            f"carried out. Nothing was changed; `hv apply {name}` carries them out, "
            f"`hv undo {name}` drops them."
        )


def _wait_for_workers(hv: Context, whole: Sequence[Batch]) -> None:
    """Workers without work are about to leave; as long as they live, they keep outputs open."""
    boot, until = hv.probe.boot(), time.monotonic() + LEAVING
    for part in whole:
        while any(
            hv.probe.process_start(pid) == start
            for pid, start in hv.store.read(removal.workers, part.id, boot)
        ):
            if time.monotonic() > until:
                raise WrongState(
                    f"cannot delete {part.name}: its workers are still running. "
                    "Nothing was changed; try again in a few seconds."
                )
            time.sleep(0.02)


def _delete_tasks(hv: Context, part: Batch, dry_run: bool) -> tuple[list[Output], int]:
    """Returns the outputs that are gone, and how many could not be deleted."""
    gone, left = [], 0
    for tasks in _slices(hv, part.id):
        outputs = [output for task, last in tasks for output in _outputs(hv, task, last)]
        removed = outputs if dry_run else _delete_slice(hv, tasks, outputs)
        left += len(outputs) - len(removed)
        gone += removed
    sessions = hv.store.read(removal.session_ids, part.id)
    own = [output for session in sessions for output in _outputs(hv, session, 1)]
    removed = own if dry_run else hv.outputs.remove(own)
    if hv.outputs.shared is not None and not dry_run:
        hv.outputs.shared.remove_all_of(sessions)
    return gone + removed, left + len(own) - len(removed)


def _delete_slice(
    hv: Context, tasks: Sequence[tuple[str, int]], outputs: list[Output]
) -> list[Output]:
    """Delete a few tasks and their outputs; returns the outputs that are gone."""
    removed = hv.outputs.remove(outputs)
    if hv.outputs.shared is not None:
        hv.outputs.shared.remove_all_of([task for task, _ in tasks])
    for task, _ in tasks:
        hv.homes.remove(task)
    hv.store.write(removal.delete_tasks, [task for task, _ in tasks])
    return removed


def delete_single_tasks(hv: Context, before: int, dry_run: bool = False) -> int:
    """Delete tasks without a batch that ended before then, unless others wait for them; returns how
    many."""
    count, after = 0, ""
    while tasks := hv.store.read(removal.single_tasks, before, after, SLICE):
        if not dry_run:
            outputs = [output for task, last in tasks for output in _outputs(hv, task, last)]
            _delete_slice(hv, tasks, outputs)
        count, after = count + len(tasks), tasks[-1][0]
    return count


def _slices(hv: Context, batch: str) -> Iterator[list[tuple[str, int]]]:
    after = ""
    while tasks := hv.store.read(removal.page, batch, after, SLICE):
        yield tasks
        after = tasks[-1][0]


def _outputs(hv: Context, task: str, attempts: int) -> Iterator[Output]:
    for number in range(1, attempts + 1):
        size = hv.outputs.local_size(task, number)
        if size is not None:
            yield Output(task, number, size, 0)


def _finish(hv: Context, part: Batch, content: removal.Content, now: int) -> None:
    while hv.store.write(removal.delete_actions, part.id, SLICE):
        pass
    shutil.rmtree(hv.batch_files.folder(part.name), ignore_errors=True)
    data: dict[str, object] = {
        "name": part.name,
        "tasks": content.tasks,
        "attempts": content.attempts,
    }
    if not hv.store.write(removal.finish, part.id, data, hv.actor, now):
        raise WrongState(
            f"tasks were added to {part.name} while it was deleted. They are kept; "
            f"`hv cancel {part.name}` cancels them, then delete it again."
        )
