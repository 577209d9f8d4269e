"""A worker whose journal the tests read, and what they expect of it."""

from __future__ import annotations

from hypervisor.adapters.journal import remains
from hypervisor.domain.lease import Token, Worker
from hypervisor.domain.run import Remains

WORKER = Worker("w", "worker-7", "here", "boot", 7, 700)
ONE, TWO = Token("000000000001", 1, "aaaa"), Token("000000000002", 3, "bbbb")


def left(verdicts=(), running=None, leader=None):
    token = None if running is None else str(running)
    return Remains(tuple(verdicts), token, leader, "/sys/fs/cgroup/seven")


def told(runtime) -> Remains:
    found = remains(runtime, WORKER)
    assert found is not None
    return found
