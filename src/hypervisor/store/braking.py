"""Brakes: accounts that rest. Every change says so in the event log."""

from __future__ import annotations

import time

from hypervisor.domain.agents.brake import Brake
from hypervisor.store import log
from hypervisor.store.session import Session

# Several agents meet the same limit at once: only what makes the rest longer is news.
SET = """
INSERT INTO brakes (account, until, level, reason, since) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (account) DO UPDATE SET until = excluded.until, level = excluded.level,
    reason = excluded.reason, since = excluded.since
WHERE excluded.until > brakes.until
RETURNING account
"""
LIFT = "DELETE FROM brakes WHERE account = ? RETURNING account"
BRAKES = "SELECT account, until, level, reason, since FROM brakes ORDER BY account"


def set_brake(session: Session, brake: Brake, actor: str, now: int) -> None:
    if session.rows(SET, brake):
        who = brake.account.partition(":")[0]
        at = time.strftime("%H:%M:%S", time.gmtime(brake.until / 1000))
        said = f"{who} rests until {at} UTC: {brake.reason}"
        _log(session, "brake", {**brake._asdict(), "said": said}, actor, now)


def lift_brake(session: Session, account: str, actor: str, now: int) -> bool:
    """False if there was none."""
    if not session.rows(LIFT, (account,)):
        return False
    _log(session, "lift_brake", {"account": account}, actor, now)
    return True


def brakes(session: Session) -> list[Brake]:
    """Those in force, and those whose time is over until somebody lifts them."""
    return [Brake(*row) for row in session.rows(BRAKES)]


def _log(session: Session, kind: str, data: dict[str, object], actor: str, now: int) -> None:
    log.write(session, now, [log.Line(kind, "", "", None, None, actor, log.dump(data))])
