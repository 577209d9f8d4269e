"""A person takes a task over from its worker: the claim changes hands in one transaction."""

from __future__ import annotations

from hypervisor.core.errors import WrongState
from hypervisor.queue import lifecycle
from hypervisor.queue.lease import ClaimRequest
from hypervisor.queue.lifecycle import state_name
from hypervisor.queue.sql import claims, steer
from hypervisor.queue.sql.claims import Claimed
from hypervisor.store.database import Session

STATE = "SELECT state FROM tasks WHERE id = ?"


def take_over(
    session: Session, task: str, request: ClaimRequest, nonce: str, reason: str, now: int
) -> Claimed:
    """Claim a task that is running, blocked or ready. WrongState: nothing was changed."""
    session.lock("keys")  # before any row is locked, as in a claim
    claims.worker_seen(session, request.worker, now)
    state = str(session.rows(STATE, (task,))[0][0])
    if state == lifecycle.IN_PROGRESS:
        steer.revoke_claim(session, task, reason, request.worker.name, now)
    elif state == lifecycle.BLOCKED:
        steer.requeue(session, task, "reopen", reason, request.worker.name, now=now)
    claimed = claims.claim_one(session, task, request, nonce, now)
    if claimed is None:
        step = f"; try `hv retry {task}`" if state in lifecycle.TERMINAL else ""
        raise WrongState(
            f"{task} is {state_name(state)} and cannot be claimed now. Nothing was changed{step}."
        )
    return claimed
