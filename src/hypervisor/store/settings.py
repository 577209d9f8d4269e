"""The settings that a store keeps: text by name."""

from __future__ import annotations

from collections.abc import Mapping

from hypervisor.store.database import Database, Session

STORE_ID = "store id"  # drawn when a store is made, see `migrations/`
GET = "SELECT value FROM settings WHERE name = ?"
LIKE = "SELECT name, value FROM settings WHERE substr(name, 1, length(?)) = ?"
SET = """
INSERT INTO settings (name, value) VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET value = excluded.value
"""
SET_OTHER = SET + "WHERE settings.value <> excluded.value RETURNING name"
UNSET = "DELETE FROM settings WHERE name = ?"


def setting(session: Session, name: str) -> str | None:
    return next((str(row[0]) for row in session.rows(GET, (name,))), None)


def settings_like(session: Session, prefix: str) -> dict[str, str]:
    """The settings whose names begin like this."""
    return dict(session.rows(LIKE, (prefix, prefix)))


def set_setting(session: Session, name: str, value: str | None) -> None:
    if value is None:
        session.run(UNSET, (name,))
    else:
        session.run(SET, (name, value))


def set_settings(session: Session, values: Mapping[str, str]) -> None:
    session.run_many(SET, list(values.items()))


def change_setting(session: Session, name: str, value: str) -> bool:
    """Set it. False if it had that value already."""
    return bool(session.rows(SET_OTHER, (name, value)))


def identity(store: Database) -> str:
    """Tells this store from all others, copies of it included, whatever it is called. Half of
    it is drawn once and kept in the store, the other half is where its bytes are."""
    return f"{store.read(setting, STORE_ID)} {store.location()}"
