"""Submitting a batch: how its tasks are to be run, and the tasks themselves."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from hypervisor.batches.sql import chunks as chunks_sql
from hypervisor.batches.sql import last_run
from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput
from hypervisor.core.records import NamedTuple
from hypervisor.core.text import pluralize
from hypervisor.inputs.item_names import text_in_data
from hypervisor.queue import lifecycle
from hypervisor.queue.add import SimilarTaskChecker, insert_tasks
from hypervisor.queue.context import Context
from hypervisor.queue.lifecycle import OPEN
from hypervisor.queue.pause import BATCH, Pause
from hypervisor.queue.sql import insert, queries, steer
from hypervisor.queue.sql import pauses as pauses_sql
from hypervisor.queue.task import Batch, Changes, Json, NewTask
from hypervisor.runs import sql
from hypervisor.runs.check_spec import check_spec, with_workspace
from hypervisor.runs.rerun import (
    Rerun,
    check_not_paused,
    check_same_work,
    current_data,
    has_columns,
    tasks_to_redo,
)
from hypervisor.runs.results import BAD, FOR_PEOPLE
from hypervisor.runs.spec import Gate, RunSpec, spec_data
from hypervisor.store.database import slices

FIRST_SLICE, SLICE, LINKED_SLICE = 100, 1_000, 5_000


class Submitted(NamedTuple):
    """The result of `submit`: how many tasks are new, retried, done or still open."""

    batch: Batch
    since: int
    added: int = 0
    retried: int = 0
    still_open: int = 0
    already_done: int = 0
    environment_kept: bool = True  # else commands get the supervisor's environment
    redone: int = 0  # were done and run again
    for_people: tuple[str, ...] = ()  # open tasks that wait for a person

    @property
    def to_do(self) -> int:
        return self.added + self.retried + self.still_open + self.redone


class Again(NamedTuple):
    """What happens to done tasks; the paths of items are relative to `cwd`."""

    cwd: str
    rerun: Rerun


def _check_sandbox(hv: Context, spec: RunSpec) -> None:
    if not hv.is_equipped:
        return
    if spec.sandbox or spec.agent or hv.settings.sandbox.level != "none":
        from hypervisor.runs.sandbox.check import check_sandbox

        check_sandbox(hv, spec)


def submit(
    hv: Context,
    spec: RunSpec,
    tasks: Iterable[NewTask],
    name: str,
    now: int | None = None,
    *,
    chunks: Sequence[str] = (),
    together: bool = False,
    rerun: Rerun = "changed",
) -> Submitted:
    """Run a command, function or agent once per item; items that are already done are skipped.

    `rerun` says which of those are run again: the ones whose files have "changed" since, "all",
    or none ("unfinished").
    `chunks` are the names of the chunks; a task's `chunk` is its place among them, from 1.
    `together` adds all in one step, so that any task may wait for any other.
    """
    check_spec(spec)
    if spec.agent:
        spec, tasks = hv.assign_agents(hv, spec, tasks)
    _check_sandbox(hv, spec)
    spec = with_workspace(spec)
    if spec.workspace == "clone":
        tasks = list(tasks)  # all are checked before the first one starts
        spec = hv.prepare_workspaces(spec, filter(None, (text_in_data(t.data) for t in tasks)))
    validate.label("the batch's name", name)
    check_not_paused(hv, [name])
    check_same_work(hv, name, spec, rerun)
    since = hv.now() + 1 if now is None else now  # tasks that have just ended count as done before
    if isinstance(tasks, Sequence):
        _check_all(tasks)
    if together:
        tasks = list(tasks)
        hv.store.read(insert.check_links, tasks, name)  # before the batch is created
    with hv.launcher.submitting():
        batch = hv.store.write(sql.declare, name, spec_data(spec), hv.actor, hv.at(now))
        has_environment = hv.launcher.keep_environment(batch.id)
        hv.store.write(
            pauses_sql.resume, Pause(BATCH, batch.id, "run again", hv.actor, 0), hv.at(now)
        )
        counts = Submitted(batch, since, environment_kept=has_environment)
        checked = _checked(_with_chunk_numbers(hv, batch, tasks, chunks, spec.gate))
        parts = [list(checked)] if together else _slices(checked)
        counts = _submit_all(hv, counts, parts, Again(spec.cwd, rerun), now)
        hv.store.write(last_run.set_skipped, batch.id, counts.already_done)
    return counts


def outcome(hv: Context, *parts: Submitted) -> dict[str, int]:
    """How many tasks have changed to each state since a run began."""
    states: Counter[str] = Counter()
    for part in parts:
        states.update(hv.store.read(sql.changed_since, part.batch.id, part.since))
    return states


def unsuccessful(hv: Context, *parts: Submitted) -> int:
    """How many tasks of a run did not succeed; what failed in earlier runs does not count."""
    changed = outcome(hv, *parts)
    open_tasks = 0
    for part in parts:
        states = hv.store.read(queries.stats, part.batch.id, hv.now(), False).states
        open_tasks += sum(states[state] for state in OPEN)
        open_tasks += len(undecided(hv, part))
    return open_tasks + sum(changed.get(state, 0) for state in BAD)


def undecided(hv: Context, part: Submitted) -> list[str]:
    """The tasks of a run that were not run because they wait for a person."""
    return [
        task.id
        for task in hv.store.read(queries.tasks, part.for_people)
        if task.state in FOR_PEOPLE and task.updated_at < part.since
    ]


def _slices(tasks: Iterable[NewTask]) -> Iterator[list[NewTask]]:
    """Small slices, the first one above all: work starts while the rest is still being added, and a
    slice blocks other writers. Tasks with dependencies go into large slices, within which they may
    have any order."""
    source, size = iter(tasks), min(FIRST_SLICE, SLICE)
    while part := list(islice(source, size)):
        if any(task.after for task in part):
            part += islice(source, LINKED_SLICE - len(part))
            size = LINKED_SLICE
        yield part
        size = max(size, SLICE)


def _check_all(tasks: Iterable[NewTask]) -> None:
    """Before anything is added: an invalid task must not leave half a batch behind."""
    try:
        for _ in _checked(tasks):
            pass
    except InvalidInput as error:
        raise InvalidInput(f"{error} Nothing was added.") from None


def _checked(tasks: Iterable[NewTask]) -> Iterator[NewTask]:
    check = SimilarTaskChecker().check
    for number, task in enumerate(tasks, 1):
        try:
            checked = check(task)
        except InvalidInput as error:
            raise InvalidInput(f"task {number}: {error}") from None
        yield checked


def _submit_all(
    hv: Context,
    counts: Submitted,
    parts: Iterable[list[NewTask]],
    again: Again,
    now: int | None,
) -> Submitted:
    """Add part by part. An error in a later part says what was already added."""
    try:
        for part in parts:
            counts = _submit(hv, counts, part, again, now)
    except InvalidInput as error:
        there = counts.added + counts.retried + counts.already_done + counts.still_open
        there += counts.redone
        if not there:
            raise InvalidInput(f"{error} Nothing was added.") from None
        raise InvalidInput(
            f"{error} Already in batch {counts.batch.name!r}: {pluralize(there, 'task')}. "
            f"Correct it and add all of them again; tasks with a key are not added twice."
        ) from None
    return counts


def _with_chunk_numbers(
    hv: Context, batch: Batch, tasks: Iterable[NewTask], chunks: Sequence[str], gate: Gate
) -> Iterator[NewTask]:
    """The tasks with the numbers that the chunks have in the batch."""
    declared = hv.store.write(chunks_sql.declare, batch.id, chunks, gate) if chunks else ()
    numbers = {chunk.name: chunk.number for chunk in declared}
    for task in tasks:
        yield task._replace(chunk=numbers[chunks[task.chunk - 1]]) if task.chunk else task


def _submit(
    hv: Context, so_far: Submitted, part: list[NewTask], again: Again, now: int | None
) -> Submitted:
    added = insert_tasks(hv, part, so_far.batch.name, now)
    new = set(added.ids)
    states = {
        duplicate.task: duplicate.state
        for duplicate in added.duplicates
        if duplicate.task not in new
    }
    ended = [task for task, state in states.items() if state in ("failed", "cancelled", "blocked")]
    retried = len(_reopen(hv, ended, now))
    finished = {task for task, state in states.items() if state == lifecycle.DONE}
    data = {task.key: task.data for task in part}
    redone = _redo(
        hv,
        {
            duplicate.task: data[duplicate.key]
            for duplicate in added.duplicates
            if duplicate.task in finished
        },
        again,
        so_far.since,
        now,
    )
    skipped = sorted(finished.difference(redone))
    done = len(skipped) - hv.store.read(sql.changed_among, skipped, so_far.since)  # not done since
    return so_far._replace(
        added=so_far.added + len(added.ids),
        retried=so_far.retried + retried,
        redone=so_far.redone + len(redone),
        already_done=so_far.already_done + done,
        still_open=so_far.still_open + len(states) - retried - len(redone) - done,
        for_people=(
            *so_far.for_people,
            *(task for task, state in states.items() if state in FOR_PEOPLE),
        ),
    )


def _redo(
    hv: Context, finished: dict[str, Json], again: Again, since: int, now: int | None
) -> list[str]:
    """Reopen done tasks that are to be redone, with their current columns."""
    redo = tasks_to_redo(hv, again.cwd, finished, again.rerun, since)
    for task in hv.store.read(
        queries.tasks, [task for task in redo if has_columns(finished[task])]
    ):
        data = current_data(task.data, finished[task.id])
        if data != task.data:
            hv.store.write(steer.update, task.id, Changes(data=data), hv.actor, hv.at(now))
    return _reopen(hv, redo, now)


def _reopen(hv: Context, tasks: Sequence[str], now: int | None) -> list[str]:
    return [
        task
        for page in slices(tasks)
        for task in hv.store.write(steer.reopen_all, page, "run again", hv.actor, hv.at(now))
    ]
