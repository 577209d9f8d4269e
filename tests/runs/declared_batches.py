"""Batches that are run, and their workers."""

from __future__ import annotations

from hypervisor.queue.lease import Worker
from hypervisor.queue.pause import Pause
from tests.support.given import NOW

SPEC = {"cwd": "/", "command": ["true", "{}"]}
RUNNER = Worker("w-run", "worker-7", "here", "boot1", 107, 3)
ALL = Pause("all", "", "why", "ann", NOW)


def kinds(ledger, since=0):
    return [event.kind for event in ledger.events(since, 10_000)]


def last_event(ledger):
    return ledger.events(0, 10_000)[-1]
