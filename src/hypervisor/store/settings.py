"""The settings that a store keeps: text by name."""

from __future__ import annotations

from hypervisor.store.database import Database, Session

STORE_ID = "store id"  # set when a store is created, see `migrations/`
GET = "SELECT value FROM settings WHERE name = ?"
SET = """
INSERT INTO settings (name, value) VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET value = excluded.value
"""
UNSET = "DELETE FROM settings WHERE name = ?"


def setting(session: Session, name: str) -> str | None:
    return next((str(row[0]) for row in session.rows(GET, (name,))), None)


def set_setting(session: Session, name: str, value: str | None) -> None:
    if value is None:
        session.run(UNSET, (name,))
    else:
        session.run(SET, (name, value))


def identity(store: Database) -> str:
    """Identifies a store under all its names: by the random id in it, and by where its data is,
    which differs for a copy."""
    return f"{store.read(setting, STORE_ID)} {store.location()}"
