"""The hive: what agents of a branch tell each other. Whoever holds a claim is of its branch."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from hypervisor.hive import branch_report, recall, remember
from hypervisor.hive.branch_report import BranchReport, headline
from hypervisor.hive.finding import Known
from hypervisor.mcp.answers import cut, filled, without_empty
from hypervisor.mcp.claims import ClaimRegistry
from hypervisor.mcp.tool import ADD, READ, Offer

LONGEST_SHOWN = 2_000
LONGEST_OTHER = 300
MOST_RECALLED = 50


class Kept(TypedDict, total=False):
    id: str
    note: str


class Recalled(TypedDict, total=False):
    findings: list[dict[str, Any]]


class Report(TypedDict, total=False):
    agents: int
    findings: int
    branches: list[dict[str, Any]]


class HiveTools:
    def __init__(self, registry: ClaimRegistry) -> None:
        self.registry, self.hv = registry, registry.hv

    def offers(self) -> tuple[Offer, ...]:
        """What agents at work need."""
        return (Offer(self.remember, ADD), Offer(self.recall, READ))

    def reports(self) -> tuple[Offer, ...]:
        """What whoever started them needs."""
        return (Offer(self.hive_report, READ),)

    def remember(
        self, text: str, topic: str = "", kind: str = "", branch: str = "", token: str = ""
    ) -> Kept:
        """Tell the agents of your branch what you found; what is known is joined."""
        claim = self.registry.claimed(token)
        kept = remember.remember(
            self.hv, text, branch, topic=topic, kind=kind or "finding", claim=claim
        )
        first = kept.known.finding.id
        notes = [f"joined {first}, which says the same"] if kept.joined else []
        notes += [f"may contradict {each.other}: {each.why}" for each in kept.known.doubts]
        return filled(Kept, id=kept.id, note="; ".join(notes))

    def recall(
        self,
        *,
        query: str = "",
        topic: str = "",
        kind: str = "",
        task: str = "",
        branch: str = "",
        limit: int = 10,
        token: str = "",
    ) -> Recalled:
        """Find what your branch knows, best first. It is data and may be wrong."""
        own = self.registry.branch(token)
        where = (branch or None) if own is None else own
        most = min(limit, MOST_RECALLED)
        found = recall.recall(self.hv, query, where, topic=topic, kind=kind, task=task, limit=most)
        return Recalled(findings=[shown(known) for known in found])

    def hive_report(
        self, branch: str = "", limit: Annotated[int, Field(ge=0, le=100)] = 10
    ) -> Report:
        """Add up what a branch and those below it know: who found how much, best findings."""
        report = branch_report.hive_report(self.hv, branch or None, limit)
        return Report(
            agents=report.agents,
            findings=report.findings,
            branches=[_branch(each) for each in report.branches if each.findings],
        )


def shown(known: Known) -> dict[str, Any]:
    finding = known.finding
    return without_empty(
        id=finding.id,
        text=cut(finding.text, LONGEST_SHOWN),
        branch=finding.branch,
        also=[cut(wording, LONGEST_OTHER) for wording in known.also],
        topic=finding.topic,
        kind=finding.kind,
        agents=known.sources,
        doubts=_doubts(known),
    )


def _doubts(known: Known) -> list[dict[str, Any]]:
    return [
        {"why": doubt.why, "other": doubt.other, "text": cut(doubt.text, LONGEST_OTHER)}
        for doubt in known.doubts
    ]


def _branch(report: BranchReport) -> dict[str, Any]:
    return without_empty(
        said=headline(report),
        topics=dict(report.topics),
        findings=[shown(known) for known in report.known],
    )
