"""Opening a connection to PostgreSQL, directly or through a pooler.

A pooler in transaction mode (PgBouncer) may send each transaction to another connection of its own,
so nothing that belongs to a session works there: settings, prepared statements, temporary objects,
LISTEN. It is recognized by the process id that it makes up for the session.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.types.numeric import Int8Dumper

from hypervisor.core.records import NamedTuple
from hypervisor.store.database import Row

SCHEMA = "hypervisor"

# A queue's tables change faster than their statistics, so the planner always
# uses indexes and plans each statement once.
SETTINGS = {
    "search_path": SCHEMA,
    "client_min_messages": "warning",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
}
RELAXED = {"synchronous_commit": "off"}
# Unless the URL sets them: a connection whose other end has vanished fails within half a minute.
NETWORK: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,  # milliseconds
}
BACKEND = "SELECT pg_backend_pid()"


class Opened(NamedTuple):
    """A connection. `begin`: what each transaction must begin with, "" without a pooler."""

    connection: psycopg.Connection[Row]
    begin: str = ""


def connect(url: str, network: dict[str, Any], relaxed: bool) -> Opened:
    connection = psycopg.connect(url, autocommit=True, client_encoding="UTF8", **network)
    connection.adapters.register_dumper(int, Int8Dumper)
    settings = {**SETTINGS, **(RELAXED if relaxed else {})}
    if is_pooled(connection):
        connection.prepare_threshold = None
        return Opened(connection, local_settings(settings))
    connection.execute("; ".join(f"SET {name} TO {value}" for name, value in settings.items()))
    return Opened(connection)


def is_pooled(connection: psycopg.Connection[Row]) -> bool:
    row = connection.execute(BACKEND, prepare=False).fetchone()
    return row is None or row[0] != connection.info.backend_pid


def local_settings(settings: dict[str, str]) -> str:
    """One statement that sets them until the end of the transaction."""
    each = (f"set_config('{name}', '{value}', true)" for name, value in settings.items())
    return f"SELECT {', '.join(each)}"
