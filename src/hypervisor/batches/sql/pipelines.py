"""Pipelines: the batches of their stages, whether the reduce is pending, and its last input.

Every submission of a pipeline with a reduce is counted. The reduce is pending until the last
submission has been released, so a submission that comes in between is never lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypervisor.core.errors import LeaseLost
from hypervisor.core.records import NamedTuple
from hypervisor.store.database import Session

if TYPE_CHECKING:
    from hypervisor.queue.lease import Token

PIPELINE = """
SELECT p.id, p.reduce_batch, p.reduce_task, p.fail_fast
FROM pipeline_batches b JOIN pipelines p ON p.id = b.pipeline WHERE b.batch = ?
"""
BATCHES = "SELECT batch FROM pipeline_batches WHERE pipeline = ? ORDER BY position"
SAVE = """
INSERT INTO pipelines (id, reduce_batch, reduce_task, fail_fast, submissions)
VALUES (?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET reduce_batch = excluded.reduce_batch,
    reduce_task = excluded.reduce_task, fail_fast = excluded.fail_fast,
    submissions = pipelines.submissions + excluded.submissions
"""
ADD_BATCH = """
INSERT INTO pipeline_batches (batch, pipeline, position) VALUES (?, ?, ?)
ON CONFLICT (batch) DO UPDATE SET pipeline = excluded.pipeline, position = excluded.position
"""
REMOVE_BATCHES = "DELETE FROM pipeline_batches WHERE pipeline = ?"
# The counts stay: a release that is under way must not count for a later pipeline.
REMOVE = "UPDATE pipelines SET reduce_batch = '', reduce_task = '' WHERE id = ?"
PENDING = "SELECT id FROM pipelines WHERE submissions > released AND reduce_task <> '' ORDER BY id"
SUBMISSIONS = """
SELECT submissions FROM pipelines WHERE id = ? AND submissions > released AND reduce_task <> ''
"""
RELEASE = """
UPDATE pipelines SET released = ? WHERE id = ? AND released < ? AND submissions >= ?
"""
REDUCE_INPUT = "SELECT digest FROM reduce_inputs WHERE task = ?"
SET_REDUCE_INPUT = """
INSERT INTO reduce_inputs (task, digest) VALUES (?, ?)
ON CONFLICT (task) DO UPDATE SET digest = excluded.digest
"""


class Pipeline(NamedTuple):
    """The ids of the stages' batches in order, and of the reduce's batch and task."""

    stages: tuple[str, ...]
    reduce_batch: str = ""
    reduce_task: str = ""
    fail_fast: bool = False  # then the reduce does not run on a part of the results

    @property
    def batches(self) -> tuple[str, ...]:
        return (*self.stages, self.reduce_batch) if self.reduce_batch else self.stages


def save(session: Session, pipeline: Pipeline, pending: bool = False) -> None:
    """Store a pipeline; replaces an earlier one with the same first batch."""
    first = pipeline.stages[0]
    reduce = (pipeline.reduce_batch, pipeline.reduce_task)
    session.run(SAVE, (first, *reduce, int(pipeline.fail_fast), int(pending)))
    session.run(REMOVE_BATCHES, (first,))
    rows = [(batch, first, position) for position, batch in enumerate(pipeline.batches, 1)]
    session.run_many(ADD_BATCH, rows)


def remove(session: Session, first: str) -> None:
    """Remove the later stages of this batch."""
    session.run(REMOVE_BATCHES, (first,))
    session.run(REMOVE, (first,))


def of_batch(session: Session, batch: str) -> Pipeline | None:
    """The pipeline that a batch belongs to."""
    for first, reduce_batch, reduce_task, fail_fast in session.rows(PIPELINE, (batch,)):
        batches = (row[0] for row in session.rows(BATCHES, (first,)))
        stages = tuple(part for part in batches if part != reduce_batch)
        if stages:  # else another pipeline has taken over all of its batches
            return Pipeline(stages, reduce_batch, reduce_task, bool(fail_fast))
    return None


def pending(session: Session) -> list[str]:
    """The first batches of the pipelines whose reduce is pending."""
    return [row[0] for row in session.rows(PENDING)]


def pending_submission(session: Session, first: str) -> int:
    """The last submission of a pipeline whose reduce is pending; 0 if it is not."""
    return next((int(row[0]) for row in session.rows(SUBMISSIONS, (first,))), 0)


def release(session: Session, first: str, submission: int) -> None:
    """The reduce is no longer pending, unless there was another submission."""
    session.run(RELEASE, (submission, first, submission, submission))


def reduce_input(session: Session, task: str) -> str | None:
    """The digest of a reduce task's last input; "" if it must run again anyway."""
    return next((row[0] for row in session.rows(REDUCE_INPUT, (task,))), None)


def set_reduce_input(session: Session, task: str, digest: str) -> None:
    session.run(SET_REDUCE_INPUT, (task, digest))


def set_reduce_input_under_claim(session: Session, token: Token, digest: str) -> bool:
    """Store the digest of a claimed reduce task's input, unless its claim has ended."""
    try:
        from hypervisor.queue.sql import claims

        claims.lock_claim(session, token)
    except LeaseLost:
        return False
    set_reduce_input(session, token.task, digest)
    return True
