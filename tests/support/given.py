"""Names and times that the tests of this folder share, and a few queries."""

from __future__ import annotations

from typing import Any

from hypervisor.queue.lane import ClaimFilter
from hypervisor.queue.lease import AttemptResult, ClaimRequest, Lease, Worker, parse_token
from tests.support.ledger import Ledger

NOW = 1_800_000_000_000
SECOND = 1_000
WEEK = 7 * 24 * 3600 * SECOND
LEASE = 60 * SECOND
ANN = Worker("w-ann", "ann", "here", "boot1", 101, 1)
BOB = Worker("w-bob", "bob", "there", "boot2", 102, 1)


def titles(leases: list[Lease]) -> list[str]:
    return [lease.task.title for lease in leases]


def claim_all(ledger: Ledger, worker: Worker = ANN, at: int = NOW, **wanted: Any) -> list[str]:
    return titles(ledger.claim(ClaimRequest(worker, 100, LEASE, ClaimFilter(**wanted)), at))


def claimable(ledger: Ledger, worker: Worker = ANN, at: int = NOW, **wanted: Any) -> list[str]:
    """What could be claimed; it is put back."""
    leases = ledger.claim(ClaimRequest(worker, 100, LEASE, ClaimFilter(**wanted)), at)
    ledger.settle([AttemptResult(parse_token(lease.token), "release") for lease in leases], at)
    return titles(leases)
