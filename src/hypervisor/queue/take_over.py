"""Taking a task over from its worker."""

from __future__ import annotations

from hypervisor.core import randomness
from hypervisor.queue.context import Context
from hypervisor.queue.lease import ClaimRequest, Lease, Worker
from hypervisor.queue.sql import claims
from hypervisor.queue.sql import take_over as sql


def take_over(hv: Context, task: str, me: Worker, lease: int, reason: str) -> Lease:
    """Claim a task that is running, blocked or ready, at no cost to it. A worker that runs it
    notices that its claim has ended, and stops."""
    request, now = ClaimRequest(me, 1, lease), hv.now()
    (nonce,) = randomness.nonces(1)
    claimed = hv.store.write(sql.take_over, task, request, nonce, reason, now)
    return claims.lease(claimed, request, now)
