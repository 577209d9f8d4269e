"""Checkpoints: reviewing a chunk and deciding about it.

A decision is stored at once, whether or not anything runs; the next chunk starts by itself if a
supervisor can be started here.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal, get_args

from hypervisor.batches.checkpoint import Checkpoint, checkpoint, digest_of
from hypervisor.batches.chunk import HELD, OPEN, Chunk, ChunkState
from hypervisor.batches.chunk_files import write_chunk
from hypervisor.batches.plans.plan import plan
from hypervisor.batches.reduce import release_reduce
from hypervisor.batches.review_items import item_digest
from hypervisor.batches.sql import chunks as chunks_sql
from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput, NotFound, WrongState
from hypervisor.core.records import NamedTuple
from hypervisor.queue.context import Context
from hypervisor.queue.sql import queries
from hypervisor.queue.task import Batch, Task
from hypervisor.runs import sql as runs_sql
from hypervisor.runs.spec import spec_from
from hypervisor.runs.supervise import supervise
from hypervisor.store.database import Session

MAX_NOTE_LENGTH = 10_000


Decision = Literal["approved", "rejected"]
DECISIONS: tuple[Decision, ...] = get_args(Decision)


class Decided(NamedTuple):
    """What a decision did."""

    batch: str
    chunk: int
    decision: Decision | Literal["retry"]
    opened: tuple[int, ...]
    tasks: int  # how many go back into the queue
    kept: int = 0  # how many do not, because a person has corrected them


class ToDecide(NamedTuple):
    """A chunk or a task that is waiting for a person. `batch` is the id; "" for a task without."""

    batch: str
    chunk: Chunk | None = None
    task: Task | None = None


def chunks(hv: Context, batch: str) -> tuple[Chunk, ...]:
    """List the chunks of a batch with their progress and the decision on each."""
    return tuple(hv.store.read(chunks_sql.every, _batch(hv, batch).id))


def awaiting(hv: Context, batch: str | None = None) -> tuple[tuple[Batch, Chunk], ...]:
    """List the chunks that are waiting for a decision, in one batch or in all."""
    ids = (
        [_batch(hv, batch).id] if batch is not None else hv.store.read(chunks_sql.batches_with_open)
    )
    return tuple(
        (chunks, chunk)
        for chunks in (hv.store.read(queries.batch, batch) for batch in ids)
        for chunk in hv.store.read(chunks_sql.every, chunks.id)
        if chunk.awaits_decision
    )


def review(hv: Context, batch: str, chunk: int | None = None, now: int | None = None) -> Checkpoint:
    """Show the results of a chunk: counts, unusual samples, failures, and what happens next."""
    reviewed = _batch(hv, batch)
    shown = _chunk(hv, reviewed, chunk)
    reports = hv.store.read(runs_sql.report_chunk, reviewed.id, shown.number, hv.at(now))
    _write_files(hv, reviewed, shown.number)
    return checkpoint(reviewed, shown, reports, hv.store.read(chunks_sql.every, reviewed.id))


def decide(
    hv: Context,
    batch: str,
    decision: Decision,
    chunk: int | None = None,
    note: str = "",
    *,
    rest: bool = False,
    shown: str = "",
    planned: str = "",
    now: int | None = None,
) -> Decided:
    """Approve or reject a chunk; with `rest`, later chunks need no decision.

    `shown` is the digest of the review that the decision is about, and `planned` the hash of the
    chunk's plan; if anything has changed since, it is refused."""
    if decision not in DECISIONS:
        raise InvalidInput(f"invalid decision {decision[:40]!r} (use {' or '.join(DECISIONS)}).")
    validate.text("the note", note, MAX_NOTE_LENGTH)
    reviewed = _batch(hv, batch)
    decided = _chunk(hv, reviewed, chunk)
    if chunk is None and decided.is_decided:
        raise WrongState(
            f"no chunk of {reviewed.name} is waiting for a decision. Nothing was changed."
        )
    _refuse_changed_plan(hv, decided, planned)
    opened = hv.store.write(
        chunks_sql.decide,
        reviewed.id,
        decided.number,
        ChunkState(decision),
        note=note,
        in_advance=rest or spec_from(reviewed.spec).gate != "each",
        may_change=chunk is not None,
        check=lambda session, current: _refuse_changed(session, current, shown, hv.at(now)),
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
    shown: str = "",
    now: int | None = None,
) -> Decided:
    """Retry a chunk, or some of its tasks, with a note for the worker.

    Tasks whose results a person has corrected keep them, unless they are named. `shown` as in
    `decide`."""
    validate.text("the note", note, MAX_NOTE_LENGTH)
    reviewed = _batch(hv, batch)
    number = _chunk(hv, reviewed, chunk).number
    own = hv.store.read(chunks_sql.chunk_tasks, reviewed.id, number)
    task_ids = [hv.resolve(task) for task in tasks]
    if strangers := sorted(set(task_ids) - {task.id for task in own}):
        raise NotFound(f"{strangers[0]} is not in chunk {number}. Nothing was changed.")
    count = hv.store.write(
        chunks_sql.retry,
        reviewed.id,
        number,
        task_ids,
        note,
        check=lambda session, current: _refuse_changed(session, current, shown, hv.at(now)),
        actor=hv.actor,
        now=hv.at(now),
    )
    _continue_run(hv, reviewed, bool(count))
    corrected = 0 if task_ids else sum(map(chunks_sql.is_corrected, own))
    return Decided(reviewed.name, number, "retry", (), count, corrected)


def amend(
    hv: Context, task: str, changes: dict[str, Any], now: int | None = None, *, shown: str = ""
) -> Any:
    """Correct the result of a task, such as its category; returns the new result.

    `shown` is the digest of the item that the correction is about; if it has changed since, the
    correction is refused."""
    task_id = hv.resolve(task)
    if not changes:
        raise InvalidInput("nothing to correct: give a field and its value, such as category=task.")
    validate.json_value("the correction", changes)
    result = hv.store.write(
        chunks_sql.amend,
        task_id,
        changes,
        hv.actor,
        hv.at(now),
        check=lambda current: _refuse_changed_item(current, shown),
    )
    hv.tasks_changed([task_id])  # its receipt; the correction is for the review, not for the file
    return result


def _refuse_changed(session: Session, chunk: Chunk, shown: str, now: int) -> None:
    if not shown:
        return
    reports = runs_sql.report_chunk(session, chunk.batch, chunk.number, now)
    if digest_of(chunk, reports) != shown:
        raise WrongState(
            f"chunk {chunk.number} has changed since it was shown. Nothing was decided; look at "
            "it again."
        )


def _refuse_changed_plan(hv: Context, chunk: Chunk, planned: str) -> None:
    """Not in the transaction: it reads files. `apply` compares them again."""
    if planned and plan(hv, chunk.batch, diffs=False, chunk=chunk.number).hash != planned:
        raise WrongState(
            f"the changes that chunk {chunk.number} proposes, or the files they concern, have "
            "changed since they were shown. Nothing was decided; look at them again."
        )


def _refuse_changed_item(task: Task, shown: str) -> None:
    if shown and item_digest(task) != shown:
        raise WrongState(
            f"{task.id} has changed since it was shown. Nothing was corrected; look at it again."
        )


def _write_files(hv: Context, batch: Batch, number: int) -> None:
    """The files of a chunk: a supervisor may have been killed before it wrote them."""
    chunks = hv.store.read(chunks_sql.every, batch.id)
    for chunk in chunks:
        if chunk.number == number and chunk.state != HELD and hv.is_equipped:
            with suppress(OSError):  # the decision is stored anyway
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
        raise NotFound(f"{batch.name} has no chunks.")
    if number is not None:
        for chunk in chunks:
            if chunk.number == number:
                return chunk
        raise NotFound(f"{batch.name} has no chunk {number}: it has {len(chunks)}.")
    waiting = [chunk for chunk in chunks if chunk.awaits_decision]
    running = [chunk for chunk in chunks if chunk.state == OPEN]
    return (waiting or running or chunks[-1:])[0]
