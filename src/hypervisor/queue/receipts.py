"""Receipts: evidence that an action happened, chained so that tampering shows."""

from __future__ import annotations

from collections.abc import Sequence

from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput, NotFound
from hypervisor.queue.context import Context
from hypervisor.queue.lease import parse_token
from hypervisor.queue.receipt import Receipt
from hypervisor.queue.sql import queries
from hypervisor.queue.sql import receipts as receipts_sql

MAX_LINE_LENGTH = 20_000


def receipt(
    hv: Context, claim: str, texts: Sequence[str], now: int | None = None
) -> tuple[Receipt, ...]:
    """Add receipts to a task: as its worker with the claim's token, or as a person by task id."""
    if isinstance(texts, str):
        texts = [texts]
    if not texts:
        raise InvalidInput("no text given")
    lines = [validate.text("the receipt", text, MAX_LINE_LENGTH, empty=False) for text in texts]
    if "." in claim:
        token = parse_token(claim)
        written = hv.store.write(receipts_sql.append_under_claim, token, lines, hv.at(now))
        task = token.task
    else:
        task = hv.resolve(claim)
        written = hv.store.write(receipts_sql.append, task, hv.actor, lines, hv.at(now))
    hv.tasks_changed([task])  # the task's file has it before we report success
    return tuple(written)


def receipts(hv: Context, of: str) -> tuple[Receipt, ...]:
    """List the receipts of a batch or of a task, oldest first.

    Those of a deleted batch are found by its id."""
    if (chain := batch_chain(hv, of)) is not None:
        return tuple(hv.store.read(receipts_sql.chain_receipts, chain))
    return tuple(hv.store.read(receipts_sql.of_task, hv.resolve(of)))


def batch_chain(hv: Context, of: str) -> str | None:
    """The chain of the batch that is meant, which may have been deleted; None for a task."""
    validate.text("the batch or task", of)
    try:
        return hv.store.read(queries.batch, of).id
    except NotFound:
        return of if hv.store.read(receipts_sql.is_deleted_batch, of) else None
