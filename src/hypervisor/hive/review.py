"""Reviewing findings, where config.toml says that other branches get only reviewed ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput
from hypervisor.hive.finding import Finding, finding_id
from hypervisor.hive.sql import review as sql

if TYPE_CHECKING:
    from hypervisor.queue.context import Context

MAX_LISTED = 10_000
MAX_APPROVED = 1_000


def must_review(hv: Context) -> bool:
    """Whether agents get findings of other branches only after a review."""
    return hv.is_equipped and hv.settings.review_findings


def unreviewed_findings(
    hv: Context, branch: str | None = None, limit: int = 100
) -> tuple[Finding, ...]:
    """List findings of agents that no person has reviewed, oldest first, identical texts once."""
    validate.number("the limit", limit, 1, MAX_LISTED)
    if branch is not None:
        validate.name("the branch", branch, empty=True)
    return tuple(hv.store.read(sql.unreviewed, branch, limit))


def approve_findings(
    hv: Context, findings: Sequence[str], now: int | None = None, *, by_agent: bool = False
) -> tuple[str, ...]:
    """Approve findings, so that agents of other branches may get them; all or none of them.

    Findings merged with them are approved only if their text is identical."""
    if by_agent:
        raise InvalidInput("only a person may approve findings. Nothing was approved.")
    ids = [finding_id(finding) for finding in dict.fromkeys(findings)]
    validate.number("the number of findings", len(ids), 1, MAX_APPROVED)
    return tuple(hv.store.write(sql.approve, ids, hv.actor, hv.at(now)))
