"""Hosts: registering, renewing a lease, declaring a host gone.

Leases are by the clock of the database, unless a time is passed in: hosts need not agree on it.
"""

from __future__ import annotations

import json

from hypervisor.core.errors import NotFound
from hypervisor.queue.host import (
    Host,
    HostLease,
    HostState,
    HostStatus,
    Registration,
    margin_of,
)
from hypervisor.queue.sql import event_log
from hypervisor.store.database import Row, Session

COLUMNS = """
id, name, boot, state, epoch, lease_ms, lease_until, registered_at, seen_at, pid, pid_start,
launcher, labels, resources, versions, zone, workers, status
"""
HOSTS = f"SELECT {COLUMNS} FROM hosts ORDER BY name, registered_at, id"
HOST = f"SELECT {COLUMNS} FROM hosts WHERE id = ?"
JSON_COLUMNS = [Host._fields.index(name) for name in ("labels", "resources", "versions", "status")]
# A new epoch only if others may have taken the claims: a new supervisor continues the lease.
REGISTER = """
INSERT INTO hosts (id, name, boot, pid, pid_start, launcher, labels, resources, versions,
    lease_ms, margin, state, epoch, lease_until, registered_at, seen_at)
SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, lease, margin, 'up', 1,
    CASE WHEN lease > 0 THEN at + lease ELSE 0 END, at, at
FROM (SELECT CAST(? AS BIGINT) AS lease, CAST(? AS BIGINT) AS margin, {now} AS at) AS given
WHERE at > 0
ON CONFLICT (id) DO UPDATE SET
    epoch = CASE WHEN hosts.state = 'gone' OR (hosts.lease_until > 0
        AND hosts.lease_until + hosts.margin < excluded.seen_at)
        THEN hosts.epoch + 1 ELSE hosts.epoch END,
    state = CASE WHEN hosts.state = 'gone' THEN 'up' ELSE hosts.state END,
    lease_ms = excluded.lease_ms, margin = excluded.margin, lease_until = excluded.lease_until,
    registered_at = excluded.registered_at, seen_at = excluded.seen_at, pid = excluded.pid,
    pid_start = excluded.pid_start, launcher = excluded.launcher, labels = excluded.labels,
    resources = excluded.resources, versions = excluded.versions
RETURNING epoch, lease_until
"""
RENEW = """
UPDATE hosts SET lease_until = {now} + lease_ms, seen_at = {now}
WHERE id = ? AND epoch = ? AND state <> 'gone' RETURNING lease_until
"""
RENEW_AND_PUBLISH = RENEW.replace("SET", "SET zone = ?, workers = ?, status = ?,", 1)
LEAVE = """
UPDATE hosts SET state = 'gone', lease_until = 0, workers = 0, status = '{}'
WHERE id = ? AND epoch = ?
"""
SET_STATE = "UPDATE hosts SET state = ? WHERE id = ? AND state <> 'gone' RETURNING name"
LAPSED = "state <> 'gone' AND lease_until > 0 AND lease_until + margin < ?"
ANY_LAPSED = f"SELECT 1 FROM hosts WHERE {LAPSED} LIMIT 1"
DECLARE_GONE = f"""
UPDATE hosts SET state = 'gone', epoch = epoch + 1, workers = 0
WHERE {LAPSED} RETURNING id, name, epoch
"""


def register(session: Session, host: Registration, now: int | None = None) -> HostLease:
    """Add a host, or a new supervisor of it. With a new epoch, all earlier claims are lost."""
    sql = REGISTER.format(now=_now(session))
    values = (*host[:5], host.launcher, *map(_dump, host[7:]))
    lease = (host.lease_ms, margin_of(host.lease_ms))
    return HostLease(*session.rows(sql, (*values, *lease, now))[0])


def renew(
    session: Session,
    host: str,
    epoch: int,
    status: HostStatus | None = None,
    now: int | None = None,
) -> int | None:
    """Renew the lease of a host; returns its end. None: it was declared gone since."""
    published: Row = ()
    sql = RENEW
    if status is not None:
        sql = RENEW_AND_PUBLISH
        published = (status.zone, status.workers, _dump(status.status))
    rows = session.rows(sql.format(now=_now(session)), (*published, now, now, host, epoch))
    return int(rows[0][0]) if rows else None


def leave(session: Session, host: str, epoch: int) -> None:
    """The last process of a host ends its lease."""
    session.run(LEAVE, (host, epoch))


def set_state(session: Session, host: str, state: HostState, actor: str, now: int) -> None:
    """Drain a host, or let it work again. NotFound: it is gone."""
    rows = session.rows(SET_STATE, (state, host))
    if not rows:
        raise NotFound(f"no such host: {host}")
    message = f"host {rows[0][0]} is {state}"
    event_log.note(session, "host", _news(host, state, message), actor, now)


def declare_gone(session: Session, now: int) -> list[str]:
    """Declare hosts gone whose lease has ended, with the margin; returns their ids. Their renewals
    are refused from now on."""
    if not session.rows(ANY_LAPSED, (now,)):
        return []
    rows = session.rows(DECLARE_GONE, (now,))
    for host, name, _ in rows:
        message = f"host {name} did not renew its lease"
        event_log.note(session, "host", _news(host, "gone", message), "rescue", now)
    return [row[0] for row in rows]


def any_lapsed(session: Session, now: int) -> bool:
    return bool(session.rows(ANY_LAPSED, (now,)))


def hosts(session: Session) -> list[Host]:
    return [_host(row) for row in session.rows(HOSTS)]


def host(session: Session, host_id: str) -> Host | None:
    return next((_host(row) for row in session.rows(HOST, (host_id,))), None)


def _now(session: Session) -> str:
    return f"coalesce(CAST(? AS BIGINT), {session.clock})"


def _news(host: str, state: str, message: str) -> dict[str, str]:
    return {"host": host, "state": state, "message": message}


def _dump(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _host(row: Row) -> Host:
    values = [*row]
    for column in JSON_COLUMNS:
        values[column] = json.loads(values[column])
    host = Host(*values)
    return host._replace(labels=tuple(host.labels))
