"""The Python API: every operation as a method of an open ledger."""

from __future__ import annotations

import os
from types import TracebackType

from hypervisor import bootstrap
from hypervisor.operations import add as _add
from hypervisor.operations import applying as _applying
from hypervisor.operations import claim as _claim
from hypervisor.operations import doctor as _doctor
from hypervisor.operations import look as _look
from hypervisor.operations import plan as _plan
from hypervisor.operations import preflight as _preflight
from hypervisor.operations import receipts as _receipts
from hypervisor.operations import report as _report
from hypervisor.operations import retention as _retention
from hypervisor.operations import review as _review
from hypervisor.operations import run as _run
from hypervisor.operations import steer as _steer
from hypervisor.operations import sweep as _sweep
from hypervisor.operations.context import Context


class Hypervisor(Context):
    """An open ledger with every operation as a method. Safe to share between threads."""

    add = _add.add
    list_tasks = _look.list_tasks
    show = _look.show
    claim = _claim.claim
    heartbeat = _claim.heartbeat
    complete = _claim.complete
    complete_and_claim = _claim.complete_and_claim
    block = _claim.block
    fail = _claim.fail
    release = _claim.release
    retry = _steer.retry
    cancel = _steer.cancel
    accept = _steer.accept
    take_back = _steer.take_back
    update = _steer.update
    receipt = _receipts.receipt
    receipts = _receipts.receipts
    verify = _receipts.verify
    write_receipts = _receipts.write_receipts
    stats = _look.stats
    batches = _look.batches
    events = _look.events
    run = _run.run
    preflight = _preflight.preflight
    report = _report.report
    supervise = _run.supervise
    status = _run.status
    attempts = _run.attempts
    summary = _run.summary
    output = _run.output
    pause = _run.pause
    resume = _run.resume
    scale = _run.scale
    kill = _run.kill
    stop_batch = _run.stop_batch
    chunks = _review.chunks
    awaiting = _review.awaiting
    review = _review.review
    decide = _review.decide
    retry_chunk = _review.retry_chunk
    amend = _review.amend
    plan = _plan.plan
    apply = _applying.apply
    undo = _applying.undo
    gc = _retention.gc
    sweep = _sweep.sweep
    doctor = _doctor.doctor

    def __enter__(self) -> Hypervisor:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def open(store: str | os.PathLike[str] | None = None, *, relaxed: bool | None = None) -> Hypervisor:
    """Open a store: a path, a postgresql:// URL, or the project's own (made if missing).

    Claims made through it belong to this process: they are not taken away while
    it lives, and put back when it has died. `relaxed` trades the wait for the
    disk against losing the last moments in a power cut.
    """
    found = bootstrap.connect(
        None if store is None else os.fspath(store), relaxed=relaxed, pid=os.getpid()
    )
    return Hypervisor(found.store, found.probe, found.actor, found.pid, found.equip)
