"""Branches: named contexts, each with a parent, unless it is merely used."""

from __future__ import annotations

from hypervisor.core.errors import InvalidInput
from hypervisor.hive.branch import MAX_ANCESTORS, Branch, ancestors, levels
from hypervisor.queue.sql import event_log
from hypervisor.store.database import Session

BRANCHES = """
SELECT name, parent, git, created_at FROM branches
UNION ALL SELECT DISTINCT l.branch, '', '', 0 FROM lanes l
WHERE l.branch <> '' AND NOT EXISTS (SELECT 1 FROM branches b WHERE b.name = l.branch)
ORDER BY 1
"""
PARENTS = "SELECT name, parent FROM branches"
SEEN = """
INSERT INTO branches (name, parent, git, created_at) VALUES (?, '', '', ?)
ON CONFLICT (name) DO NOTHING
"""
ONE = "SELECT name, parent, git, created_at FROM branches WHERE name = ?"
SET = "UPDATE branches SET parent = ?, git = ? WHERE name = ?"
UNTIE = "UPDATE branches SET git = '' WHERE git = ? AND name <> ?"


def branches(session: Session) -> list[Branch]:
    """All branches that a person, a task or a finding has ever named."""
    return [Branch(*row) for row in session.rows(BRANCHES)]


def parents(session: Session) -> dict[str, str]:
    return dict(session.rows(PARENTS))


def add_if_new(session: Session, name: str, now: int) -> None:
    if name:
        session.run(SEEN, (name, now))


def set_branch(
    session: Session, name: str, parent: str | None, git: str | None, *, actor: str, now: int
) -> Branch:
    """Create or change a branch. A git branch is tied to at most one branch."""
    session.lock("branches")
    add_if_new(session, name, now)
    add_if_new(session, parent or "", now)
    before = Branch(*session.rows(ONE, (name,))[0])
    branch = before._replace(
        parent=before.parent if parent is None else parent, git=before.git if git is None else git
    )
    if parent:
        _refuse_circle_or_depth(name, parent, parents(session))
    session.run(SET, (branch.parent, branch.git, name))
    if branch.git:
        session.run(UNTIE, (branch.git, name))
    if branch != before or before.created_at == now:
        data = {"name": name, "parent": branch.parent, "git": branch.git}
        event_log.note(session, "branch", data, actor, now)
    return branch


def _refuse_circle_or_depth(name: str, parent: str, known: dict[str, str]) -> None:
    below = levels(name, known)
    if any(parent in level for level in below):
        raise InvalidInput(
            f"{parent} cannot be the parent of {name}: it is {name} itself or below it. "
            "Nothing was changed."
        )
    if len(ancestors(parent, known)) + len(below) > MAX_ANCESTORS:
        raise InvalidInput(
            f"{below[-1][0]} would be more than {MAX_ANCESTORS} branches deep. Nothing was changed."
        )
