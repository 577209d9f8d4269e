"""Releasing the reduce of a pipeline.

The reduce runs once everything before it has ended, successfully or not, and again when there are
new results. Whether it is pending is stored, so any process can release it.
"""

from __future__ import annotations

from contextlib import suppress

from hypervisor.batches.reduce_input import has_new_input
from hypervisor.batches.sql import chunks, pipelines
from hypervisor.batches.sql.pipelines import Pipeline
from hypervisor.core.errors import RequestError, WrongState
from hypervisor.queue import lifecycle
from hypervisor.queue.context import Context
from hypervisor.queue.pause import ALL, BATCH
from hypervisor.queue.sql import pauses as pauses_sql
from hypervisor.queue.sql import queries, steer
from hypervisor.queue.task import Changes, Task
from hypervisor.runs import sql as runs_sql

MOVING = (lifecycle.ACTIVE, lifecycle.IN_PROGRESS, lifecycle.MERGING)


def has_pending_reduce(hv: Context, batch: str) -> bool:
    """Whether the reduce of the batch's pipeline is pending."""
    pipeline = hv.store.read(pipelines.of_batch, batch)
    return pipeline is not None and bool(
        hv.store.read(pipelines.pending_submission, pipeline.stages[0])
    )


def release_reduces(hv: Context) -> None:
    """Release every pending reduce that can run."""
    for first in hv.store.read(pipelines.pending):
        with suppress(OSError, RequestError):  # an error in one must not stop the others
            release_reduce(hv, first)


def release_reduce(hv: Context, first: str) -> bool:
    """Release the reduce of the pipeline that starts with this batch, once nothing else of it can
    run; it runs without failed items, and again if there are new results. True if it will run."""
    submission = hv.store.read(pipelines.pending_submission, first)
    pipeline = hv.store.read(pipelines.of_batch, first) if submission else None
    if pipeline is None or not _is_idle(hv, pipeline):
        return False
    task = hv.store.read(queries.task, pipeline.reduce_task)
    if task.state == lifecycle.IN_PROGRESS and has_new_input(hv, task):
        return False  # its input is out of date: it runs again when it has ended
    released = False
    if not (pipeline.fail_fast and _any_not_done(hv, pipeline)):
        with suppress(WrongState):  # another process was quicker
            released = _release(hv, task)
    hv.store.write(pipelines.release, first, submission)
    return released


def _is_idle(hv: Context, pipeline: Pipeline) -> bool:
    """Whether no task of the stages is running or will run by itself. Stages are checked in order:
    work only moves from stage to stage."""
    pauses = hv.store.read(pauses_sql.pauses)
    if any(p.scope == ALL or (p.scope == BATCH and p.name in pipeline.batches) for p in pauses):
        return False
    waiting = 0
    for batch in pipeline.stages:
        states = hv.store.read(queries.stats, batch, hv.now(), False).states
        if any(states[state] for state in MOVING):
            return False
        if any(chunk.awaits_decision for chunk in hv.store.read(chunks.every, batch)):
            return False
        waiting += states[lifecycle.WAITING]
    if not waiting:
        return True
    stuck = hv.store.read(runs_sql.stuck, pipeline.stages)
    return sum(stuck.get(batch, 0) for batch in pipeline.stages) >= waiting


def _any_not_done(hv: Context, pipeline: Pipeline) -> bool:
    stats = (hv.store.read(queries.stats, batch, hv.now(), False) for batch in pipeline.stages)
    return any(sum(s.states.values()) > s.states[lifecycle.DONE] for s in stats)


def _release(hv: Context, task: Task) -> bool:
    state: str = task.state
    if state in lifecycle.TERMINAL or state in (lifecycle.BLOCKED, lifecycle.REVIEW):
        last_input = hv.store.read(pipelines.reduce_input, task.id)
        asked_again = last_input == ""  # it did not succeed, and was submitted again
        ran = state == lifecycle.DONE or (state == lifecycle.FAILED and last_input is not None)
        if not (asked_again or (ran and has_new_input(hv, task))):
            return False
        state = hv.store.write(
            steer.requeue,
            task.id,
            "reopen",
            "new results arrived",
            hv.actor,
            now=hv.now(),
            attempts=task.attempts,
        )
    if state == lifecycle.WAITING:
        hv.store.write(steer.update, task.id, Changes(after=(), start_at=0), hv.actor, hv.now())
        return True
    return state == lifecycle.ACTIVE
