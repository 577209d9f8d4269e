"""The latest batch, which commands use when none is named."""

from hypervisor.batches.pipeline_names import batches_of
from hypervisor.batches.sql import last_run
from hypervisor.queue.context import Context
from hypervisor.queue.sql import queries
from hypervisor.queue.task import Batch


def note_latest_run(hv: Context, batch: str) -> None:
    hv.store.write(last_run.set_run_at, batch, hv.now())


def latest_batch(hv: Context) -> Batch | None:
    """The unarchived batch that was created or run last; the first batch of a new pipeline."""
    latest = hv.store.read(last_run.latest)
    if latest is None:
        return None
    batch, was_run = latest
    return hv.store.read(queries.batch, batch if was_run else batches_of(hv, batch)[0])
