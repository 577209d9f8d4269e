"""Receipts: evidence that an action happened, chained so that tampering shows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from hypervisor.batches.sql import report as report_sql
from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput, NotFound
from hypervisor.inputs.task_files.write_back import Unwritten, file_problems, unwritten, write_back
from hypervisor.queue.context import Context
from hypervisor.queue.lease import parse_token
from hypervisor.queue.receipt import ChainReport, Receipt
from hypervisor.queue.sql import queries
from hypervisor.queue.sql import receipts as receipts_sql

LONGEST_LINE = 20_000
MOST_TOLD = 20


def receipt(
    hv: Context, claim: str, texts: Sequence[str], now: int | None = None
) -> tuple[Receipt, ...]:
    """Append evidence to a task: under a claim's token as its worker, or to a task as a person."""
    if isinstance(texts, str):
        texts = [texts]
    if not texts:
        raise InvalidInput("no text given: what happened?")
    lines = [validate.text("the receipt", text, LONGEST_LINE, empty=False) for text in texts]
    if "." in claim:
        token = parse_token(claim)
        written = hv.store.write(receipts_sql.append_under_claim, token, lines, hv.at(now))
        task = token.task
    else:
        task = hv.resolve(claim)
        written = hv.store.write(receipts_sql.append, task, hv.actor, lines, hv.at(now))
    write_back(hv, task)  # where a person reads it, before it counts as said
    return tuple(written)


def write_receipts(hv: Context, of: str) -> int:
    """Bring the task files of a batch up to date; returns how many changed.

    What a result has changed in a file is made up for only where it could not be made before, or
    where there are receipts: what the owner has taken back since stays taken back."""
    from hypervisor.runs.run import reports  # not for every receipt

    batch = hv.store.read(queries.batch, validate.text("the batch", of)).id
    edited = {line.task for line in hv.store.read(receipts_sql.chain_receipts, batch)}
    edited |= hv.store.read(report_sql.noted, "file", batch, 0).keys()
    begun = [each.id for each in reports(hv, batch) if each.attempts]
    return sum(write_back(hv, task, edits=task in edited) for task in begun)


def unwritten_files(hv: Context, of: str) -> tuple[Unwritten, ...]:
    """The task files of a batch that could not be written and still lack something."""
    return tuple(unwritten(hv, hv.store.read(queries.batch, validate.text("the batch", of)).id))


def receipts(hv: Context, of: str) -> tuple[Receipt, ...]:
    """List the receipts of a batch or of a task, oldest first."""
    validate.text("the batch or task", of)
    try:
        return tuple(
            hv.store.read(receipts_sql.chain_receipts, hv.store.read(queries.batch, of).id)
        )
    except NotFound:
        return tuple(hv.store.read(receipts_sql.of_task, hv.resolve(of)))


def verify(hv: Context, of: str | None = None) -> tuple[ChainReport, ...]:
    """Check that no receipt was changed, removed or reordered, here or in a task file.

    `of` names a batch or a task; all if it is left out.
    """
    reports = hv.store.read(receipts_sql.check, None if of is None else _chain(hv, of))
    return tuple(map(partial(_with_files, hv), reports))


def _with_files(hv: Context, report: ChainReport) -> ChainReport:
    """The report of a chain that holds, with what is wrong in the files that show it."""
    if report.problem is not None:
        return report
    found = file_problems(hv, report.chain)
    if not found:
        return report
    more = f"; and {len(found) - MOST_TOLD} more" if len(found) > MOST_TOLD else ""
    return report._replace(problem="; ".join(found[:MOST_TOLD]) + more)


def _chain(hv: Context, of: str) -> str:
    validate.text("the batch or task", of)
    try:
        return hv.store.read(queries.batch, of).id
    except NotFound:
        task = hv.store.read(queries.task, hv.resolve(of))
        return task.batch or task.id
