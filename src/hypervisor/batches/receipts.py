"""Receipts and the task files that show them: checking both, and updating the files."""

from functools import partial

from hypervisor.batches.sql import report as report_sql
from hypervisor.batches.write_back import Unwritten, file_problems, unwritten, write_back
from hypervisor.core import validate
from hypervisor.queue.context import Context
from hypervisor.queue.receipt import ChainReport
from hypervisor.queue.receipts import batch_chain
from hypervisor.queue.sql import queries
from hypervisor.queue.sql import receipts as receipts_sql
from hypervisor.runs.results import reports

MAX_NAMED = 20


def write_receipts(hv: Context, of: str) -> int:
    """Bring the task files of a batch up to date; returns how many changed.

    Edits that a result asks for are only repeated if they failed before or there are receipts: an
    edit that the owner has reverted is not made again."""
    batch = hv.store.read(queries.batch, validate.text("the batch", of)).id
    edited = {line.task for line in hv.store.read(receipts_sql.chain_receipts, batch)}
    edited |= hv.store.read(report_sql.noted, "file", batch, 0).keys()
    begun = [task.id for task in reports(hv, batch) if task.attempts]
    late = [task for task in begun if task in edited]
    others = [task for task in begun if task not in edited]
    return write_back(hv, late, edits=True) + write_back(hv, others)


def unwritten_files(hv: Context, of: str) -> tuple[Unwritten, ...]:
    """The task files of a batch that could not be written and are still out of date."""
    return tuple(unwritten(hv, hv.store.read(queries.batch, validate.text("the batch", of)).id))


def verify(hv: Context, of: str | None = None) -> tuple[ChainReport, ...]:
    """Verify that no receipt was changed, removed or reordered, in the store or in a task file.

    `of` names a batch or a task; without it, everything is checked.
    """
    reports = hv.store.read(receipts_sql.check, None if of is None else _chain(hv, of))
    return tuple(map(partial(_with_files, hv), reports))


def _with_files(hv: Context, report: ChainReport) -> ChainReport:
    """Add problems in task files to the report of an intact chain."""
    if report.problem is not None:
        return report
    problems = file_problems(hv, report.chain)
    if not problems:
        return report
    more = f"; and {len(problems) - MAX_NAMED} more" if len(problems) > MAX_NAMED else ""
    return report._replace(problem="; ".join(problems[:MAX_NAMED]) + more)


def _chain(hv: Context, of: str) -> str:
    if (chain := batch_chain(hv, of)) is not None:
        return chain
    task = hv.store.read(queries.task, hv.resolve(of))
    return task.batch or task.id
