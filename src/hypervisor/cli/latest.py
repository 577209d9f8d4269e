"""Which batch a command is about: the named one, or the latest if none is named."""

import argparse
import sys

from hypervisor.batches.latest import latest_batch
from hypervisor.cli.output import one_line
from hypervisor.core import validate
from hypervisor.core.errors import AmbiguousId, InvalidInput, NotFound
from hypervisor.queue.context import Context
from hypervisor.queue.sql import queries
from hypervisor.queue.task import Batch


def add_batch(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "batch", nargs="?", metavar="BATCH", help="name or id of a batch (default: the latest)"
    )


def named_or_latest(hv: Context, batch: str | None) -> str:
    """The named batch, or the id of the latest one, which is printed for people."""
    if batch is not None:
        return batch
    latest = latest_batch(hv)
    if latest is None:
        raise NotFound("no batches yet. Create one with `hv run`.")
    return chosen(latest, "latest batch")


def chosen(batch: Batch, label: str) -> str:
    """Print which batch was chosen, as none was named; returns its id."""
    if sys.stderr.isatty():
        print(f"{label}: {one_line(batch.name)}", file=sys.stderr)
    return batch.id


def exact_batch(hv: Context, text: str) -> Batch | None:
    """The batch of that name or whole id: where a task may be meant, a part is not enough."""
    try:
        batch = hv.store.read(queries.batch, validate.text("the batch", text))
    except (InvalidInput, NotFound, AmbiguousId):
        return None
    return batch if text in (batch.name, batch.id) else None


def no_task_or_batch(text: str) -> NotFound:
    validate.text("the id", text)
    return NotFound(f"no task or batch {text[:60]!r}; to list them: hv ls, hv batches")
