"""Storing findings in the hive, and removing them.

A finding is data: it is stored as it is, escaped in every view, and fenced in prompts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypervisor.core import validate
from hypervisor.hive.finding import MAX_FINDING_LENGTH, NewFinding, Remembered, finding_id
from hypervisor.hive.review import must_review
from hypervisor.hive.sql import findings
from hypervisor.queue.hide_tokens import hide_tokens
from hypervisor.queue.lease import parse_token

if TYPE_CHECKING:
    from hypervisor.queue.context import Context


def remember(
    hv: Context,
    text: str,
    branch: str = "",
    *,
    topic: str = "",
    kind: str = "finding",
    claim: str = "",
    by_agent: bool = False,
    now: int | None = None,
) -> Remembered:
    """Store a finding for all agents of the branch; a duplicate is merged into the existing one.

    Under a claim's token it is the worker's, with a task's id it belongs to that task; both
    bring their branch along. Without either it is a person's, unless `by_agent`.
    """
    new = check_finding(text, branch, topic, kind)
    source: findings.Source = findings.OfActor(hv.actor, "agent" if by_agent else "person")
    if claim:
        source = (
            parse_token(claim) if "." in claim else findings.OfTask(hv.resolve(claim), hv.actor)
        )
    prepared = findings.prepare(new)  # slow, so before the transaction
    review = must_review(hv)
    return hv.store.write(findings.remember, prepared, source, hv.at(now), review=review)


def check_finding(
    text: str, branch: str = "", topic: str = "", kind: str = "finding"
) -> NewFinding:
    """A finding that can be stored, or InvalidInput."""
    return NewFinding(
        hide_tokens(validate.text("the finding", text, MAX_FINDING_LENGTH, empty=False)),
        validate.name("the branch", branch, empty=True),
        validate.label("the topic", topic) if topic else "",
        validate.name("the kind", kind),
    )


def forget(hv: Context, finding: str, now: int | None = None) -> str:
    """Delete a finding from the hive; findings that were merged into it stay."""
    return hv.store.write(findings.forget, finding_id(finding), hv.actor, hv.at(now))
