"""Archiving finished batches: lists leave them out, and everything of them is kept."""

from hypervisor.batches.pipeline_names import batches_of
from hypervisor.core import validate
from hypervisor.core.errors import WrongState
from hypervisor.core.text import pluralize
from hypervisor.queue.context import Context
from hypervisor.queue.lifecycle import state_name
from hypervisor.queue.sql import archive, queries
from hypervisor.queue.task import Batch


def archive_batch(hv: Context, batch: str, now: int | None = None) -> tuple[str, ...]:
    """Hide a finished batch, or pipeline, from lists and counts.

    Returns the names of the batches that were not archived yet. Running it again, adding to it or
    retrying one of its tasks brings it back."""
    whole = whole_pipeline(hv, batch)
    for part in whole:
        refuse_unfinished(part.name, hv.store.read(archive.unfinished, part.id), "archive")
    return tuple(
        part.name
        for part in whole
        if hv.store.write(archive.archive, part.id, hv.actor, hv.at(now))
    )


def unarchive_batch(hv: Context, batch: str, now: int | None = None) -> tuple[str, ...]:
    """Bring an archived batch back into lists and counts; returns the names of what came back."""
    return tuple(
        part.name
        for part in whole_pipeline(hv, batch)
        if hv.store.write(archive.unarchive, part.id, hv.actor, hv.at(now))
    )


def whole_pipeline(hv: Context, batch: str) -> tuple[Batch, ...]:
    """The batch; of a pipeline, the batches of all stages and of the reduce."""
    named = hv.store.read(queries.batch, validate.text("the batch", batch))
    return tuple(hv.store.read(queries.batch, part) for part in batches_of(hv, named.id))


def refuse_unfinished(name: str, states: dict[str, int], verb: str) -> None:
    if states:
        counts = ", ".join(f"{count} {state_name(state)}" for state, count in states.items())
        raise WrongState(
            f"cannot {verb} {name}: {pluralize(sum(states.values()), 'task')} not finished "
            f"({counts}). Nothing was changed; `hv cancel {name}` cancels them."
        )
