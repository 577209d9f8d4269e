"""Starts a supervisor if none is running. Every operation that adds work calls `supervise`."""

from __future__ import annotations

import time
from collections.abc import Sequence

from hypervisor.core.errors import SupervisorFailed
from hypervisor.queue.context import Context

MAX_STARTS = 3
PATIENCE = 10.0  # seconds for the supervisor to start
STEP = 0.005
NO_SUPERVISOR = "no supervisor is running on this host"


def supervise(hv: Context, wait: bool = True, stay: bool = False) -> int:
    """Start a supervisor for this store on this host if none is running; returns its process id.

    If the current one is shutting down, a successor is started, which waits for it. Without
    `wait`, returns 0 while the supervisor is starting. With `stay`, one that is started does not
    exit when there is nothing to do."""
    leaving = hv.launcher.is_leaving()
    pid = hv.launcher.supervisor()
    starts = 0
    if pid is None or leaving:
        hv.store.check_version()  # a supervisor like us would be refused
        hv.launcher.start_supervisor(stay)
        starts = 1
    hv.launcher.wake()
    if not wait:
        return pid or 0
    deadline = time.monotonic() + PATIENCE
    while not pid:
        if time.monotonic() > deadline:
            raise SupervisorFailed(
                f"the supervisor did not start within {PATIENCE:.0f} seconds. The tasks stay in "
                f"the queue. See {hv.launcher.log} for the reason, then run: hv supervise"
            )
        time.sleep(STEP)
        pid = hv.launcher.supervisor()
        if pid is None and starts < MAX_STARTS:
            hv.launcher.start_supervisor(stay)
            starts += 1
    return pid


def continue_runs(hv: Context, tasks: Sequence[str]) -> tuple[str, ...]:
    """Start a supervisor for tasks that are back in the queue; returns the names of their batches.

    Tasks of other batches wait for a claim."""
    from hypervisor.runs import sql

    batches = hv.store.read(sql.run_batches_of, tasks)
    if batches:
        with hv.launcher.submitting():
            for batch in batches:
                if hv.launcher.environment(batch) is None:  # its run has ended
                    hv.launcher.keep_environment(batch)
            supervise(hv)
    return tuple(batches.values())
