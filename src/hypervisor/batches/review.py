"""Checkpoints: what a person sees after a chunk, and what they may decide.

A decision is durable the moment it is made, whether or not anything runs; the next chunk
starts by itself if a supervisor can be started here.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from hypervisor.batches.checkpoint import Checkpoint, checkpoint
from hypervisor.batches.chunk import APPROVED, EACH, HELD, OPEN, REJECTED, Chunk, ChunkState
from hypervisor.batches.chunk_files import write_chunk
from hypervisor.batches.reduce import release_reduce
from hypervisor.batches.sql import chunks as chunks_sql
from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput, NotFound, WrongState
from hypervisor.inputs.task_files.write_back import write_back
from hypervisor.queue.context import Context
from hypervisor.queue.sql import queries
from hypervisor.queue.task import Batch
from hypervisor.runs import sql as runs_sql
from hypervisor.runs.spec import spec_from
from hypervisor.runs.supervise import supervise

LONGEST_NOTE = 10_000


class Decided(NamedTuple):
    """What a decision did."""

    batch: str
    chunk: int
    decision: str
    opened: tuple[int, ...]
    tasks: int  # how many go back into the queue


def chunks(hv: Context, batch: str) -> tuple[Chunk, ...]:
    """List the chunks of a batch with how far each is and what was decided."""
    return tuple(hv.store.read(chunks_sql.every, _batch(hv, batch).id))


def awaiting(hv: Context, batch: str | None = None) -> tuple[tuple[Batch, Chunk], ...]:
    """List the chunks that wait for a person's decision, in one batch or in all."""
    ids = (
        [_batch(hv, batch).id] if batch is not None else hv.store.read(chunks_sql.batches_with_open)
    )
    return tuple(
        (found, chunk)
        for found in (hv.store.read(queries.batch, batch) for batch in ids)
        for chunk in hv.store.read(chunks_sql.every, found.id)
        if chunk.awaits_decision
    )


def review(hv: Context, batch: str, chunk: int | None = None, now: int | None = None) -> Checkpoint:
    """Show what came of a chunk: counts, unusual samples, failures, and what happens next."""
    reviewed = _batch(hv, batch)
    shown = _chunk(hv, reviewed, chunk)
    reports = hv.store.read(runs_sql.report_chunk, reviewed.id, shown.number, hv.at(now))
    _write_files(hv, reviewed, shown.number)
    return checkpoint(reviewed, shown, reports, hv.store.read(chunks_sql.every, reviewed.id))


def decide(
    hv: Context,
    batch: str,
    decision: str,
    chunk: int | None = None,
    note: str = "",
    *,
    rest: bool = False,
    now: int | None = None,
) -> Decided:
    """Approve or reject a chunk; with `rest`, all that come later need no decision any more."""
    if decision not in (APPROVED, REJECTED):
        raise InvalidInput(f"a chunk is {APPROVED} or {REJECTED}, not {decision[:40]!r}.")
    validate.text("the note", note, LONGEST_NOTE)
    reviewed = _batch(hv, batch)
    decided = _chunk(hv, reviewed, chunk)
    if chunk is None and decided.is_decided:
        raise WrongState(f"no chunk of {reviewed.name} waits for a decision. Nothing was changed.")
    opened = hv.store.write(
        chunks_sql.decide,
        reviewed.id,
        decided.number,
        ChunkState(decision),
        note=note,
        in_advance=rest or spec_from(reviewed.spec).gate != EACH,
        may_change=chunk is not None,
        actor=hv.actor,
        now=hv.at(now),
    )
    _write_files(hv, reviewed, decided.number)
    _continue_run(hv, reviewed, bool(opened) or release_reduce(hv, reviewed.id))
    return Decided(reviewed.name, decided.number, decision, tuple(opened), 0)


def retry_chunk(
    hv: Context,
    batch: str,
    note: str,
    chunk: int | None = None,
    tasks: Sequence[str] = (),
    *,
    now: int | None = None,
) -> Decided:
    """Work on a chunk again, or on some of its tasks, with a note that reaches the worker."""
    validate.text("the note", note, LONGEST_NOTE)
    reviewed = _batch(hv, batch)
    number = _chunk(hv, reviewed, chunk).number
    own = [task.id for task in hv.store.read(chunks_sql.chunk_tasks, reviewed.id, number)]
    wanted = [hv.resolve(task) for task in tasks] or own
    if strangers := sorted(set(wanted) - set(own)):
        raise NotFound(f"{strangers[0]} is not in chunk {number}. Nothing was changed.")
    count = hv.store.write(
        chunks_sql.retry, reviewed.id, number, wanted, note, actor=hv.actor, now=hv.at(now)
    )
    _continue_run(hv, reviewed, bool(count))
    return Decided(reviewed.name, number, "retry", (), count)


def amend(hv: Context, task: str, changes: dict[str, Any], now: int | None = None) -> Any:
    """Correct what a worker said came of a task, such as its category; returns the new result."""
    task_id = hv.resolve(task)
    if not changes:
        raise InvalidInput("nothing to correct: name a field and its value, as in category=task.")
    validate.json_value("the correction", changes)
    result = hv.store.write(chunks_sql.amend, task_id, changes, hv.actor, hv.at(now))
    write_back(hv, task_id)  # its receipt; the correction is for the review, not for the file
    return result


def _write_files(hv: Context, batch: Batch, number: int) -> None:
    """The files of a chunk: a supervisor may have been killed before it wrote them."""
    chunks = hv.store.read(chunks_sql.every, batch.id)
    for chunk in chunks:
        if chunk.number == number and chunk.state != HELD and hv.is_equipped:
            with suppress(OSError):  # the decision holds all the same
                write_chunk(hv, batch, chunk, chunks)


def _continue_run(hv: Context, batch: Batch, more: bool) -> None:
    if more and hv.is_equipped:
        with hv.launcher.submitting():
            hv.launcher.keep_environment(batch.id)
            supervise(hv)


def _batch(hv: Context, text: str) -> Batch:
    return hv.store.read(queries.batch, validate.text("the batch", text))


def _chunk(hv: Context, batch: Batch, number: int | None) -> Chunk:
    chunks = hv.store.read(chunks_sql.every, batch.id)
    if not chunks:
        raise NotFound(f"{batch.name} was not cut into chunks.")
    if number is not None:
        for chunk in chunks:
            if chunk.number == number:
                return chunk
        raise NotFound(f"{batch.name} has no chunk {number}: it has {len(chunks)}.")
    waiting = [chunk for chunk in chunks if chunk.awaits_decision]
    running = [chunk for chunk in chunks if chunk.state == OPEN]
    return (waiting or running or chunks[-1:])[0]
