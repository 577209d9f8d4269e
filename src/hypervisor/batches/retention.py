"""Retention of finished work: batches and single tasks are deleted some time after they ended.

Only if config.toml asks for it, and never with work in a clone that has not been merged.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from hypervisor.batches.archive import whole_pipeline
from hypervisor.batches.delete import delete_batch, delete_single_tasks
from hypervisor.batches.sql import removal
from hypervisor.core.errors import NotFound, WrongState
from hypervisor.core.records import NamedTuple
from hypervisor.queue.sql import event_log, queries
from hypervisor.runs import sql
from hypervisor.runs.spec import COMMON

if TYPE_CHECKING:
    from hypervisor.queue.context import Context
    from hypervisor.queue.task import Batch

MAX_BATCHES = 1_000_000

logger = logging.getLogger("hypervisor.batches")


class Cleared(NamedTuple):
    """What was deleted, or would be: the names of batches, and all their tasks and single ones."""

    batches: tuple[str, ...] = ()
    tasks: int = 0


def delete_finished(
    hv: Context, before: int, dry_run: bool = False, now: int | None = None
) -> Cleared:
    """Delete the batches, pipelines and single tasks whose last task ended before then."""
    batches: list[str] = []
    tasks = 0
    for batch in reversed(hv.store.read(queries.batches, MAX_BATCHES, None)):
        if batch.name in batches or batch.created_at >= before:
            continue
        try:  # with the other batches of its pipeline, or it was deleted with them
            if all(_is_due(hv, part, before) for part in whole_pipeline(hv, batch.id)):
                deleted = delete_batch(hv, batch.id, dry_run, now)
                batches += deleted.batches
                tasks += deleted.tasks
        except NotFound:
            continue
        except WrongState as error:
            logger.info("%s", error)
    single = delete_single_tasks(hv, before, dry_run)
    if single and not dry_run:
        hv.store.write_unsynced(event_log.note, "gc", {"tasks": single}, hv.actor, hv.at(now))
    return Cleared(tuple(batches), tasks + single)


def _is_due(hv: Context, batch: Batch, before: int) -> bool:
    if batch.deleting:  # to its end
        return True
    if batch.created_at >= before or hv.store.read(sql.not_ended_before, batch.id, before, "", 1):
        return False
    has_clones = isinstance(batch.spec, dict) and batch.spec.get(COMMON["workspace"])
    return not (has_clones and hv.store.read(removal.is_unmerged, batch.id))
