"""Actions proposed under a claim while its task runs: one row each, until the claim ends.

Earlier versions kept the proposals of a claim as one JSON list in the settings. A process of
such a version may still be running, so these are read, too.
"""

from __future__ import annotations

from typing import Any

from hypervisor.core.errors import InvalidInput, LeaseLost
from hypervisor.queue.lease import Token
from hypervisor.queue.sql import claims, event_log
from hypervisor.store.database import Session

MAX_SIZE = 1_000_000  # characters of JSON that a claim may propose before its result
MAX_COUNT = 10_000

ADD = "INSERT INTO proposals (task, attempt, number, data) VALUES (?, ?, ?, ?)"
SIZE = """
SELECT coalesce(max(number), 0), count(*), coalesce(sum(length(data)), 0) FROM proposals
WHERE task = ? AND attempt = ?
"""
ALL = "SELECT data FROM proposals WHERE task = ? AND attempt = ? ORDER BY number"
FORGET = "DELETE FROM proposals WHERE task = ? AND attempt = ?"
OLD = "SELECT value FROM settings WHERE name = ?"
FORGET_OLD = "DELETE FROM settings WHERE name = ?"


def add(session: Session, token: Token, proposal: dict[str, Any], until: int) -> int:
    """Store a proposal and renew the claim. Returns how many proposals the claim has."""
    if not claims.heartbeat(session, [token], until):  # which also locks the task
        raise LeaseLost(str(token), "it is no longer yours")
    old = _old(session, token)
    [(last, count, size)] = session.rows(SIZE, token[:2])
    data = event_log.dump(proposal) or ""
    count, size = count + len(old) + 1, size + len(event_log.dump(old) or "") + len(data)
    if count > MAX_COUNT or size > MAX_SIZE:
        raise InvalidInput("this claim has proposed too many actions. The last one was not saved.")
    session.run(ADD, (*token[:2], last + 1, data))
    return int(count)


def of_claim(session: Session, token: Token) -> list[Any]:
    """The proposals of a claim, in order."""
    return [
        *_old(session, token),
        *(event_log.load(row[0]) for row in session.rows(ALL, token[:2])),
    ]


def take(session: Session, token: Token) -> list[Any]:
    """Remove and return the proposals of a claim, for its result."""
    if proposed := of_claim(session, token):
        forget(session, token)
    return proposed


def forget(session: Session, token: Token) -> None:
    session.run(FORGET, token[:2])
    session.run(FORGET_OLD, (_old_name(token),))


def _old(session: Session, token: Token) -> list[Any]:
    rows = session.rows(OLD, (_old_name(token),))
    return list(event_log.load(rows[0][0])) if rows else []


def _old_name(token: Token) -> str:
    return f"proposals {token.task}.{token.attempt}"
