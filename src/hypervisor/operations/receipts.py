"""Receipts: evidence that an action happened, chained so that tampering shows."""

from __future__ import annotations

from collections.abc import Sequence

from hypervisor.domain import checks
from hypervisor.domain.errors import InvalidInput, NotFound
from hypervisor.domain.lease import parse_token
from hypervisor.domain.receipt import ChainReport, Receipt
from hypervisor.operations.context import Context

LONGEST_LINE = 20_000


def receipt(
    hv: Context, claim: str, texts: Sequence[str], now: int | None = None
) -> tuple[Receipt, ...]:
    """Append evidence to a task: under a claim's token as its worker, or to a task as a person."""
    if isinstance(texts, str):
        texts = [texts]
    if not texts:
        raise InvalidInput("no text given: what happened?")
    lines = [checks.text("the receipt", text, LONGEST_LINE, empty=False) for text in texts]
    if "." in claim:
        return tuple(hv.store.append_under_claim(parse_token(claim), lines, now))
    return tuple(hv.store.append(hv.store.resolve(claim), hv.actor, lines, now))


def receipts(hv: Context, of: str) -> tuple[Receipt, ...]:
    """List the receipts of a batch or of a task, oldest first."""
    checks.text("the batch or task", of)
    try:
        return tuple(hv.store.receipts_of_chain(hv.store.batch(of).id))
    except NotFound:
        return tuple(hv.store.receipts_of_task(hv.store.resolve(of)))


def verify(hv: Context, of: str | None = None) -> tuple[ChainReport, ...]:
    """Check that no receipt was changed, removed or reordered; `of` names a batch or a task."""
    return tuple(hv.store.check_receipts(None if of is None else _chain(hv, of)))


def _chain(hv: Context, of: str) -> str:
    checks.text("the batch or task", of)
    try:
        return hv.store.batch(of).id
    except NotFound:
        task = hv.store.task(hv.store.resolve(of))
        return task.batch or task.id
