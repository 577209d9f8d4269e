"""A worker whose journal the tests read, and what they expect of it."""

from __future__ import annotations

from hypervisor.queue.lease import Leftovers, Token, Worker
from hypervisor.runs.processes.journal import remains

WORKER = Worker("w", "worker-7", "here", "boot", 7, 700)
ONE, TWO = Token("000000000001", 1, "aaaa"), Token("000000000002", 3, "bbbb")


def left(verdicts=(), running=None, leader=None):
    token = None if running is None else str(running)
    return Leftovers(tuple(verdicts), token, leader, "/sys/fs/cgroup/seven")


def told(runtime) -> Leftovers:
    found = remains(runtime, WORKER)
    assert found is not None
    return found
