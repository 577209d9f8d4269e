"""Which batches a name stands for, if it may be that of a pipeline. Loaded by short commands."""

from __future__ import annotations

from hypervisor.batches.sql import pipelines
from hypervisor.queue.context import Context

REDUCE = "reduce"  # the key of a reduce task in its batch


def reduce_name(name: str) -> str:
    """The name of the reduce's batch."""
    return f"{name} {REDUCE}"


def batches_of(hv: Context, batch: str) -> tuple[str, ...]:
    """The ids of all batches of the pipeline that a batch belongs to; else the batch alone."""
    pipeline = hv.store.read(pipelines.of_batch, batch)
    return (batch,) if pipeline is None else pipeline.batches


def batches_from(hv: Context, batch: str) -> tuple[str, ...]:
    """The batches that this batch's name stands for: the whole pipeline if it is the first."""
    batches = batches_of(hv, batch)
    return batches if batches[0] == batch else (batch,)
