"""The one way to get a supervisor: everybody who has stored work calls `supervise`."""

from __future__ import annotations

import time

from hypervisor.core.errors import InvalidInput
from hypervisor.queue.context import Context

MOST_STARTS = 3
PATIENCE = 10.0  # seconds until it must have come up
STEP = 0.005


def supervise(hv: Context, wait: bool = True) -> int:
    """Make sure that a supervisor runs for this store on this host; returns its process id.

    Behind one that was asked to end, the next one waits. Without `wait`, 0 while it comes up."""
    leaving = hv.launcher.is_leaving()
    pid = hv.launcher.supervisor()
    starts = 0
    if pid is None or leaving:
        hv.launcher.start_supervisor()
        starts = 1
    if not wait:
        return pid or 0
    deadline = time.monotonic() + PATIENCE
    while not pid:
        if time.monotonic() > deadline:
            raise InvalidInput("the supervisor did not start; supervisor.log says why.")
        time.sleep(STEP)
        pid = hv.launcher.supervisor()
        if pid is None and starts < MOST_STARTS:
            hv.launcher.start_supervisor()
            starts += 1
    return pid
