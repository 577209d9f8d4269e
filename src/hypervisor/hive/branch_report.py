"""Reports of the findings of branches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from hypervisor.core import validate
from hypervisor.core.errors import NotFound
from hypervisor.core.records import NamedTuple
from hypervisor.core.text import pluralize
from hypervisor.hive.branch import Branch, branches, levels, parents_of
from hypervisor.hive.finding import Known

if TYPE_CHECKING:
    from hypervisor.queue.context import Context

MAX_SHOWN = 1_000


class BranchReport(NamedTuple):
    """The findings of a branch, counted. `agents` counts sources, `shared` those of two or more."""

    branch: Branch
    agents: int = 0
    findings: int = 0
    distinct: int = 0
    shared: int = 0
    doubtful: int = 0
    topics: Mapping[str, int] = {}
    known: tuple[Known, ...] = ()


class HiveReport(NamedTuple):
    """The findings of a branch and those below it. `agents` counts each source once per branch."""

    branch: str | None
    agents: int
    findings: int
    distinct: int
    shared: int
    doubtful: int
    branches: tuple[BranchReport, ...]


def hive_report(
    hv: Context, branch: str | None = None, limit: int = 10, *, reader: str | None = None
) -> HiveReport:
    """Summarize the findings of a branch and those below it: agents, topics, contradictions.

    `reader` is the branch of an agent that reads it, as in `recall`."""
    from hypervisor.hive.review import must_review
    from hypervisor.hive.sql import search

    validate.number("the limit", limit, 0, MAX_SHOWN)
    known = {item.name: item for item in branches(hv)}
    if branch is None:
        names = ["", *known]
    else:
        validate.name("the branch", branch, empty=True)
        if branch and branch not in known:
            raise NotFound(f"no branch named {branch!r}. `hv branch` lists all branches.")
        below = levels(branch, parents_of(known.values())) if branch else [[""]]
        names = [name for level in below for name in level]
    wanted = [known.get(name, Branch(name)) for name in names]
    reports = hv.store.read(search.reports, wanted, limit, reader if must_review(hv) else None)
    if branch is None:
        reports = [report for report in reports if report.findings]
    return HiveReport(
        branch,
        sum(report.agents for report in reports),
        sum(report.findings for report in reports),
        sum(report.distinct for report in reports),
        sum(report.shared for report in reports),
        sum(report.doubtful for report in reports),
        tuple(reports),
    )


def headline(report: BranchReport) -> str:
    """`security-audit: 3 agents, 14 findings, 2 seen by two agents`"""
    parts = [pluralize(report.agents, "agent"), pluralize(report.findings, "finding")]
    if report.shared:
        parts.append(f"{report.shared} seen by two agents or more")
    if report.doubtful:
        parts.append(f"{report.doubtful} in doubt")
    return f"{report.branch.name or '(no branch)'}: {', '.join(parts)}"
