"""Which done items are files that have changed since, apart from our own changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from hypervisor.core.errors import StoreError
from hypervisor.inputs.item_files import FileState, file_state, is_changed
from hypervisor.queue.sql import item_files
from hypervisor.store.database import Database

Paths = Mapping[str, str]  # of the files that items name, by task


def changed_tasks(store: Database, paths: Paths) -> set[str]:
    """The tasks that are done and whose files have changed since. Changes by a later stage of the
    pipeline do not count."""
    done = store.read(item_files.done_files, list(paths)) if paths else {}
    suspects = {
        task
        for task, file in done.items()
        if is_changed(paths[task], [FileState(*file.state)] if file.state else [], file.done_at)
    }
    if not suspects:
        return suspects
    recorded = store.read(item_files.files_of_stages, suspects)
    return {
        task
        for task in suspects
        if is_changed(
            paths[task], [FileState(*row) for row in recorded.get(task, ())], done[task].done_at
        )
    }


@contextmanager
def own_changes(store: Database, paths: Paths) -> Iterator[None]:
    """Write to the files of items, for example a status, without counting as a change; what their
    owner wrote before still counts."""
    done = store.read(item_files.done_files, list(paths)) if paths else {}
    changed = changed_tasks(store, {task: paths[task] for task in done})
    yield
    states = {task: file_state(paths[task]) for task in done if task not in changed}
    rows = [(task, done[task].attempt, *state) for task, state in states.items() if state]
    if rows:
        with suppress(StoreError):  # then they are run once more than needed
            store.write_unsynced(item_files.save, rows)
