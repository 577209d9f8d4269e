"""The identity of a store is in the store: the same for all its names, a different one for every
copy."""

from __future__ import annotations

import os
import shutil

import pytest

from hypervisor.store.postgres import PostgresDatabase
from hypervisor.store.sqlite import SqliteDatabase
from tests.support.ledger import Ledger


def identity(database):
    ledger = Ledger(database)
    try:
        return ledger.identity()
    finally:
        ledger.close()


@pytest.fixture
def path(tmp_path):
    (tmp_path / "a").mkdir()
    return str(tmp_path / "a" / "store.db")


def test_a_store_file_has_one_under_all_its_names(path, tmp_path):
    first = identity(SqliteDatabase(path))
    os.symlink(tmp_path / "a", tmp_path / "link")
    assert identity(SqliteDatabase(str(tmp_path / "link" / "store.db"))) == first
    os.rename(tmp_path / "a", tmp_path / "b")
    assert identity(SqliteDatabase(str(tmp_path / "b" / "store.db"))) == first


def test_a_copied_store_file_has_another(path):
    first = identity(SqliteDatabase(path))
    shutil.copy(path, path + ".copy.db")
    assert identity(SqliteDatabase(path + ".copy.db")) != first


def test_a_new_store_file_has_another_identity(path):
    """Even if the file system gives it the same number."""
    found = set()
    for _ in range(5):
        found.add(identity(SqliteDatabase(path)).split()[0])
        for ending in ("", "-wal", "-shm"):
            if os.path.exists(path + ending):
                os.unlink(path + ending)
    assert len(found) == 5


def test_a_database_has_one_under_all_its_names(postgres_url):
    first = identity(PostgresDatabase(postgres_url))
    more = "&" if "?" in postgres_url else "?"
    assert identity(PostgresDatabase(f"{postgres_url}{more}application_name=x")) == first


def test_a_copied_database_has_another(postgres_server, postgres_url):
    import psycopg

    first = identity(PostgresDatabase(postgres_url))
    name = psycopg.conninfo.conninfo_to_dict(postgres_url)["dbname"]
    copy = postgres_server.new_database()
    other = psycopg.conninfo.conninfo_to_dict(copy)["dbname"]
    postgres_server.drop_database(copy)
    with psycopg.connect(postgres_server.new_database(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {other} TEMPLATE {name}")
    second = identity(PostgresDatabase(copy))
    assert second != first and second.split()[0] == first.split()[0]
