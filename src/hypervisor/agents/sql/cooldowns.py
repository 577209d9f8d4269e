"""Cooldowns of accounts. Every change is an event."""

from __future__ import annotations

import time

from hypervisor.agents.cooldown import Cooldown, outage_text
from hypervisor.queue.sql import event_log
from hypervisor.store.database import Session

NEWS = 5_000  # milliseconds
# Many agents meet the same limit within seconds, and each is told how long from then on: one rest.
SET = f"""
INSERT INTO brakes (account, until, level, reason, since, kind) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (account) DO UPDATE SET until = excluded.until, level = excluded.level,
    reason = excluded.reason, since = excluded.since, kind = excluded.kind
WHERE excluded.until >= brakes.until + {NEWS} OR excluded.since >= brakes.until
RETURNING account
"""
LIFT = "DELETE FROM brakes WHERE account = ? RETURNING account"
LIFT_ENDED = "DELETE FROM brakes WHERE account = ? AND until <= ? RETURNING account"
BRAKES = "SELECT account, until, level, reason, since, kind FROM brakes ORDER BY account"


def set_brake(session: Session, brake: Cooldown, actor: str, now: int) -> None:
    if session.rows(SET, brake):
        said = outage_text(brake, now) if brake.is_outage else _limit_text(brake)
        _log(session, "brake", {**brake._asdict(), "said": said}, actor, now)


def lift_brake(session: Session, account: str, actor: str, now: int, ended: bool) -> bool:
    """False if there was none; `ended`: if there was none whose time is over."""
    if not (session.rows(LIFT_ENDED, (account, now)) if ended else session.rows(LIFT, (account,))):
        return False
    _log(session, "lift_brake", {"account": account}, actor, now)
    return True


def brakes(session: Session) -> list[Cooldown]:
    """Those in force, and those whose time is over until somebody lifts them."""
    return [Cooldown(*row) for row in session.rows(BRAKES)]


def _limit_text(brake: Cooldown) -> str:
    at = time.strftime("%H:%M:%S", time.gmtime(brake.until / 1000))
    return f"{brake.provider} is rate-limited until {at} UTC: {brake.reason}"


def _log(session: Session, kind: str, data: dict[str, object], actor: str, now: int) -> None:
    event_log.write(
        session, now, [event_log.Line(kind, "", "", None, None, actor, event_log.dump(data))]
    )
