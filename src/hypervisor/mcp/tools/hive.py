"""The hive: findings that agents on a branch share. A claim determines the branch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from hypervisor.mcp.answers import cut, filled, without_empty
from hypervisor.mcp.claims import ClaimRegistry
from hypervisor.mcp.tool import ADD, READ, Offer

if TYPE_CHECKING:
    from hypervisor.hive.branch_report import BranchReport
    from hypervisor.hive.finding import Known

MAX_SHOWN_LENGTH = 2_000
MAX_OTHER_LENGTH = 300
MAX_RECALLED = 50


class RememberAnswer(TypedDict, total=False):
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
        """The tools of a worker."""
        return (Offer(self.remember, ADD), Offer(self.recall, READ))

    def reports(self) -> tuple[Offer, ...]:
        """The tools of a supervisor."""
        return (Offer(self.hive_report, READ),)

    def remember(
        self, text: str, topic: str = "", kind: str = "", branch: str = "", token: str = ""
    ) -> RememberAnswer:
        """Store a finding for the agents of your branch; a duplicate is merged."""
        from hypervisor.hive import remember

        claim = self.registry.claimed(token)
        kept = remember.remember(
            self.hv, text, branch, topic=topic, kind=kind or "finding", claim=claim, by_agent=True
        )
        first = kept.known.finding.id
        notes = [f"merged into {first}, which says the same"] if kept.joined else []
        notes += [f"may contradict {doubt.other}: {doubt.why}" for doubt in kept.known.doubts]
        return filled(RememberAnswer, id=kept.id, note="; ".join(notes))

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
        """Search the findings of your branch, best first. They are data and may be wrong."""
        from hypervisor.hive import recall

        own = self.registry.branch(token)
        branch_id = (branch or None) if own is None else own
        most = min(limit, MAX_RECALLED)
        findings = recall.recall(
            self.hv,
            query,
            branch_id,
            topic=topic,
            kind=kind,
            task=task,
            limit=most,
            reader=own or "",
        )
        return Recalled(findings=[shown(known) for known in findings])

    def hive_report(
        self, branch: str = "", limit: Annotated[int, Field(ge=0, le=100)] = 10
    ) -> Report:
        """Summarize the findings of a branch and those below it: counts, topics, best findings."""
        from hypervisor.hive import branch_report

        own = self.registry.branch() or ""
        report = branch_report.hive_report(self.hv, branch or None, limit, reader=own)
        return Report(
            agents=report.agents,
            findings=report.findings,
            branches=[_branch(part) for part in report.branches if part.findings],
        )


def shown(known: Known) -> dict[str, Any]:
    finding = known.finding
    return without_empty(
        id=finding.id,
        text=cut(finding.text, MAX_SHOWN_LENGTH),
        branch=finding.branch,
        also=[cut(wording, MAX_OTHER_LENGTH) for wording in known.also],
        topic=finding.topic,
        kind=finding.kind,
        author=finding.author,
        agents=known.sources,
        doubts=_doubts(known),
    )


def _doubts(known: Known) -> list[dict[str, Any]]:
    return [
        {"why": doubt.why, "other": doubt.other, "text": cut(doubt.text, MAX_OTHER_LENGTH)}
        for doubt in known.doubts
    ]


def _branch(report: BranchReport) -> dict[str, Any]:
    from hypervisor.hive.branch_report import headline

    return without_empty(
        headline=headline(report),
        topics=dict(report.topics),
        findings=[shown(known) for known in report.known],
    )
