"""Proposals made while work goes on: kept with the claim, part of the result in the end."""

from __future__ import annotations

import json
from typing import Any

from hypervisor.domain import action as actions
from hypervisor.domain.errors import InvalidInput, LeaseLost
from hypervisor.domain.lease import DEFAULT_LEASE, Token, parse_token
from hypervisor.domain.task import Json
from hypervisor.operations.context import Context

LARGEST = 1_000_000  # characters of JSON that the proposals of one claim may come to


def propose(hv: Context, token: str, proposal: object, now: int | None = None) -> int:
    """Propose a change under a claim, for an approved plan to carry out.

    Returns how many the claim has proposed."""
    claim = parse_token(token)
    checked = actions.checked(proposal)
    if claim not in hv.store.heartbeat([claim], DEFAULT_LEASE, now):
        raise LeaseLost(token, "it is not yours any more")
    found = [*proposed(hv, claim), checked]
    text = json.dumps(found)
    if len(found) > actions.MOST_ACTIONS or len(text) > LARGEST:
        raise InvalidInput("this claim has proposed too much. Nothing was kept of the last one.")
    hv.store.set(_place(claim), text)
    return len(found)


def proposed(hv: Context, claim: Token) -> list[dict[str, Any]]:
    """What a claim has proposed so far."""
    text = hv.store.setting(_place(claim))
    return json.loads(text) if text else []


def with_proposals(hv: Context, token: str, result: Json) -> Json:
    """The result with what was proposed before it among its actions."""
    before = proposed(hv, parse_token(token))
    if not before:
        return result
    whole = result if isinstance(result, dict) else {} if result is None else {"result": result}
    said = whole.get("actions")
    own = said if isinstance(said, list) else [] if said is None else [said]
    return {**whole, "actions": [*before, *own]}


def forget_proposals(hv: Context, token: str) -> None:
    """They are in the result now, or the attempt they belong to has ended without one."""
    claim = parse_token(token)
    if hv.store.setting(_place(claim)):
        hv.store.set(_place(claim), None)


def _place(claim: Token) -> str:
    return f"proposals {claim.task}.{claim.attempt}"
