"""Stores of the first version, on both databases."""

from __future__ import annotations

import pytest

from tests.store.old_stores import old_postgres, old_sqlite
from tests.support.databases import DATABASES, Postgres, Sqlite


@pytest.fixture(params=DATABASES)
def old_place(request, tmp_path):
    """Where a store of version 1 is that nothing has opened yet, and how to open one there."""
    if request.param == "sqlite":
        old_sqlite(tmp_path / "store.db")
        return Sqlite, tmp_path / "store.db"
    url = request.getfixturevalue("postgres_url")
    old_postgres(url)
    return Postgres, url


@pytest.fixture
def old(old_place):
    kind, where = old_place
    made = kind(where)
    yield made
    made.close()


@pytest.fixture
def fresh(request, old, tmp_path):
    """A new store on the same kind of database."""
    if old.kind == "sqlite":
        made: Sqlite | Postgres = Sqlite(tmp_path / "fresh.db")
    else:
        made = Postgres(request.getfixturevalue("postgres_server").new_database())
    yield made
    made.close()
