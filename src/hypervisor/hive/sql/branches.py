"""Branches: named contexts, each with a parent. One that is merely used has none."""

from __future__ import annotations

from hypervisor.core.errors import InvalidInput
from hypervisor.hive.finding import MOST_ANCESTORS, Branch, ancestors, levels
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
    """All that were ever named, by a person, a task or a finding."""
    return [Branch(*row) for row in session.rows(BRANCHES)]


def parents(session: Session) -> dict[str, str]:
    return dict(session.rows(PARENTS))


def seen(session: Session, name: str, now: int) -> None:
    if name:
        session.run(SEEN, (name, now))


def set_branch(
    session: Session, name: str, parent: str | None, git: str | None, actor: str, now: int
) -> Branch:
    """Make a branch or change what is given. A git branch is tied to one branch at most."""
    session.lock("branches")
    seen(session, name, now)
    seen(session, parent or "", now)
    was = Branch(*session.rows(ONE, (name,))[0])
    found = was._replace(
        parent=was.parent if parent is None else parent, git=was.git if git is None else git
    )
    if parent:
        _refuse_circle_or_depth(name, parent, parents(session))
    session.run(SET, (found.parent, found.git, name))
    if found.git:
        session.run(UNTIE, (found.git, name))
    if found != was or was.created_at == now:
        data = event_log.dump({"name": name, "parent": found.parent, "git": found.git})
        event_log.write(session, now, [event_log.Line("branch", "", "", None, None, actor, data)])
    return found


def _refuse_circle_or_depth(name: str, parent: str, known: dict[str, str]) -> None:
    below = levels(name, known)
    if any(parent in level for level in below):
        raise InvalidInput(
            f"{parent} cannot be the parent of {name}: it is {name} itself or below it. "
            "Nothing was changed."
        )
    if len(ancestors(parent, known)) + len(below) > MOST_ANCESTORS:
        raise InvalidInput(
            f"{below[-1][0]} would be more than {MOST_ANCESTORS} branches deep. "
            "Nothing was changed."
        )
