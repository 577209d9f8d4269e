"""Which findings a person has reviewed."""

from __future__ import annotations

from collections.abc import Sequence

from hypervisor.core.errors import NotFound
from hypervisor.hive.finding import Finding
from hypervisor.hive.sql import search
from hypervisor.hive.sql.findings import reindex
from hypervisor.queue.sql import event_log
from hypervisor.store.database import Session

FIRST = "CASE WHEN joins = '' THEN id ELSE joins END"
UNREVIEWED = f"""
SELECT min(id) FROM findings WHERE trust = 'agent' {{}}
GROUP BY {FIRST}, topic, text ORDER BY 1 LIMIT ?
"""
APPROVE = """
UPDATE findings SET trust = 'reviewed'
WHERE (id = ? OR (joins = ? AND joins <> '')) AND topic = ? AND text = ? AND trust = 'agent'
RETURNING id
"""


def unreviewed(session: Session, branch: str | None, limit: int) -> list[Finding]:
    """Each wording and topic once, oldest first."""
    where, values = ("", ()) if branch is None else ("AND branch = ?", (branch,))
    ids = [row[0] for row in session.rows(UNREVIEWED.format(where), (*values, limit))]
    return search.findings(session, ids)[::-1]


def approve(session: Session, ids: Sequence[str], actor: str, now: int) -> list[str]:
    """Approve findings and those merged with them that say the same word by word."""
    session.lock("hive")
    approved: list[str] = []
    for id in ids:
        group = [entry.finding for entry in search.joined(session, id)]
        finding = next((member for member in group if member.id == id), None)
        if finding is None:
            raise NotFound(
                f"no such finding: {id}. Nothing was approved; `hv hive --unreviewed` shows the "
                "ids."
            )
        first = finding.joins or id
        rows = session.rows(APPROVE, (first, first, finding.topic, finding.text))
        if rows:
            reindex(session, next(member for member in group if member.id == first))
            data = {"id": id, "branch": finding.branch}
            event_log.note(session, "approve_finding", data, actor, now, task=finding.task)
        approved.extend(sorted(row[0] for row in rows))
    return approved
