"""Cooldowns of accounts. Every change is an event."""

from __future__ import annotations

from hypervisor.agents.cooldown import Cooldown, cooldown_text
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
        text = cooldown_text(brake, now)
        _log(session, "brake", {**brake._asdict(), "said": text}, actor, now)


def lift_brake(session: Session, account: str, actor: str, now: int, ended: bool) -> bool:
    """False if there was none; `ended`: if there was none whose time is over."""
    if not (session.rows(LIFT_ENDED, (account, now)) if ended else session.rows(LIFT, (account,))):
        return False
    _log(session, "lift_brake", {"account": account}, actor, now)
    return True


def brakes(session: Session) -> list[Cooldown]:
    """Those in force, and those whose time is over until somebody lifts them."""
    return [Cooldown(*row) for row in session.rows(BRAKES)]


def _log(session: Session, kind: str, data: dict[str, object], actor: str, now: int) -> None:
    event_log.write(
        session, now, [event_log.Line(kind, "", "", None, None, actor, event_log.dump(data))]
    )
