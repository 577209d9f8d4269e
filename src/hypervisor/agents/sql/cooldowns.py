"""Cooldowns of accounts. Every change is an event."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypervisor.queue.sql import event_log
from hypervisor.store.database import Session

if TYPE_CHECKING:
    from hypervisor.agents.cooldown import Cooldown

NEWS = 5_000  # milliseconds
# Many agents hit the same limit within seconds, with different reset times: one cooldown.
SET = f"""
INSERT INTO brakes (account, until, level, reason, since, kind) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (account) DO UPDATE SET until = excluded.until, level = excluded.level,
    reason = excluded.reason, since = excluded.since, kind = excluded.kind
WHERE excluded.until >= brakes.until + {NEWS} OR excluded.since >= brakes.until
RETURNING account
"""
LIFT = "DELETE FROM brakes WHERE account = ? RETURNING account"
LIFT_ENDED = "DELETE FROM brakes WHERE account = ? AND until <= ? RETURNING account"
COOLDOWNS = "SELECT account, until, level, reason, since, kind FROM brakes ORDER BY account"


def start_cooldown(session: Session, cooldown: Cooldown, actor: str, now: int) -> None:
    if session.rows(SET, cooldown):
        from hypervisor.agents.cooldown import cooldown_text

        text = cooldown_text(cooldown, now)
        _log(session, "cooldown", {**cooldown._asdict(), "message": text}, actor, now)


def end_cooldown(session: Session, account: str, actor: str, now: int, ended: bool) -> bool:
    """False if there was none. With `ended`, only an expired cooldown is removed."""
    if not (session.rows(LIFT_ENDED, (account, now)) if ended else session.rows(LIFT, (account,))):
        return False
    _log(session, "cooldown_end", {"account": account}, actor, now)
    return True


def every(session: Session) -> list[Cooldown]:
    """All cooldowns, including expired ones that have not been removed."""
    rows = session.rows(COOLDOWNS)
    if not rows:
        return []
    from hypervisor.agents.cooldown import Cooldown

    return [Cooldown(*row) for row in rows]


def _log(session: Session, kind: str, data: dict[str, object], actor: str, now: int) -> None:
    event_log.write(
        session, now, [event_log.Line(kind, "", "", None, None, actor, event_log.dump(data))]
    )
