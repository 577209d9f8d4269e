"""Checks of a PostgreSQL server for `hv doctor`: its version, settings, connections and upkeep."""

from __future__ import annotations

from typing import Any

from hypervisor.core.records import NamedTuple
from hypervisor.core.text import pluralize
from hypervisor.store.database import Session

OLDEST = 14
MIN_FREE_CONNECTIONS = 10
LONG_IDLE = "5 minutes"
MIN_DEAD = 10_000  # rows: fewer do no harm

SETTINGS = """
SELECT name, setting FROM pg_settings
WHERE name IN ('server_version_num', 'fsync', 'full_page_writes', 'autovacuum', 'max_connections')
"""
CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
IDLE = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND state LIKE 'idle in transaction%'
    AND state_change < now() - CAST(? AS interval)
"""
BLOAT = """
SELECT relname, n_live_tup, n_dead_tup FROM pg_stat_user_tables
WHERE schemaname = ? AND n_dead_tup > ? AND n_dead_tup > n_live_tup ORDER BY n_dead_tup DESC
"""
# Wraparound: PostgreSQL stops taking writes at 2 billion.
AGE = "SELECT age(datfrozenxid) FROM pg_database WHERE datname = current_database()"
MAX_AGE = 1_000_000_000


class Finding(NamedTuple):
    """`fix` says what to do if it is not ok."""

    name: str
    ok: bool
    found: str
    fix: str = ""


def findings(session: Session, schema: str) -> list[Finding]:
    settings = {name: str(value) for name, value in session.rows(SETTINGS)}
    return [
        _version(settings),
        _durable(settings),
        _connections(session, settings),
        _upkeep(session, settings, schema),
        _idle(session),
    ]


def _version(settings: dict[str, str]) -> Finding:
    major = int(settings.get("server_version_num", "0")) // 10_000
    ok = major >= OLDEST
    return Finding("version", ok, f"PostgreSQL {major}", f"use PostgreSQL {OLDEST} or newer")


def _durable(settings: dict[str, str]) -> Finding:
    off = [name for name in ("fsync", "full_page_writes") if settings.get(name) != "on"]
    names = " and ".join(off)
    found = f"{names} off" if off else "fsync and full_page_writes on"
    return Finding("settings", not off, found, f"a crash may corrupt the store; turn on {names}")


def _connections(session: Session, settings: dict[str, str]) -> Finding:
    used, most = int(session.rows(CONNECTIONS)[0][0]), int(settings.get("max_connections", "0"))
    fix = "raise max_connections, or put PgBouncer in front of the database"
    return Finding("connections", most - used >= MIN_FREE_CONNECTIONS, f"{used} of {most}", fix)


def _upkeep(session: Session, settings: dict[str, str], schema: str) -> Finding:
    if settings.get("autovacuum") != "on":
        return Finding("upkeep", False, "autovacuum is off", "set autovacuum = on")
    age = int(session.rows(AGE)[0][0])
    if age > MAX_AGE:
        return Finding("upkeep", False, f"oldest transaction {age:,} ago", "run VACUUM FREEZE")
    bloated = [_bloat(*row) for row in session.rows(BLOAT, (schema, MIN_DEAD))]
    fix = f"run VACUUM (ANALYZE) on the tables of the schema {schema}"
    return Finding("upkeep", not bloated, "; ".join(bloated) or "autovacuum keeps up", fix)


def _bloat(table: Any, live: int, dead: int) -> str:
    return f"{table}: {dead:,} dead rows beside {live:,}"


def _idle(session: Session) -> Finding:
    count = int(session.rows(IDLE, (LONG_IDLE,))[0][0])
    found = f"{pluralize(count, 'session')} idle in a transaction for over {LONG_IDLE}"
    fix = "they keep dead rows from being removed; set idle_in_transaction_session_timeout"
    return Finding("sessions", not count, found if count else "none idle in a transaction", fix)
