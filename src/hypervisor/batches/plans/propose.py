"""Proposals made during an attempt, stored with its claim until they become part of the result."""

from __future__ import annotations

from hypervisor.queue.context import Context
from hypervisor.queue.lease import DEFAULT_LEASE, parse_token
from hypervisor.queue.sql import proposals


def propose(hv: Context, token: str, proposal: object, now: int | None = None) -> int:
    """Propose a change with the token of a claim; it is made only after the plan is approved.

    Returns how many the claim has proposed."""
    from hypervisor.batches.plans import action as actions

    claim = parse_token(token)
    return hv.store.write(
        proposals.add, claim, actions.checked(proposal), hv.at(now) + DEFAULT_LEASE
    )


def forget_proposals(hv: Context, token: str) -> None:
    """Drop the proposals of a claim that has ended without a result."""
    claim = parse_token(token)
    if hv.store.read(proposals.of_claim, claim):
        hv.store.write_unsynced(proposals.forget, claim)
