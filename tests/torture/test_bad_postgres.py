"""PostgreSQL databases that cannot be a store: one clear line, and the data as they were."""

from __future__ import annotations

import psycopg
import pytest

import hypervisor
from hypervisor.core import errors
from tests.torture.refusals import assert_refused


def test_newer_postgres_store(postgres_url):
    hypervisor.open(postgres_url).close()
    with psycopg.connect(postgres_url, autocommit=True) as direct:
        direct.execute("UPDATE hypervisor.schema_version SET version = version + 1")
    before = _catalogue(postgres_url)
    assert "upgrade" in assert_refused(postgres_url, errors.StoreNewer)
    assert _catalogue(postgres_url) == before


@pytest.mark.parametrize(
    "foreign",
    [
        "CREATE TABLE hypervisor.recipes (name text)",
        "CREATE TABLE hypervisor.schema_version (version text); "
        "INSERT INTO hypervisor.schema_version VALUES ('3.1-beta')",
        "CREATE TABLE hypervisor.schema_version (version bigint)",
        "CREATE TABLE hypervisor.schema_version (name text)",
        "CREATE VIEW hypervisor.tasks AS SELECT 1 AS id",
    ],
    ids=["table", "text version", "no version", "other column", "view"],
)
def test_foreign_schema_in_postgres(postgres_url, foreign):
    with psycopg.connect(postgres_url, autocommit=True) as direct:
        direct.execute("CREATE SCHEMA hypervisor")
        direct.execute(foreign)
    before = _catalogue(postgres_url)
    assert "another database" in assert_refused(postgres_url, errors.StoreBroken)
    assert _catalogue(postgres_url) == before


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_postgres_that_not_all_text_fits_into(postgres_url, encoding):
    other = psycopg.conninfo.conninfo_to_dict(postgres_url)["dbname"] + encoding.lower()
    with psycopg.connect(postgres_url, autocommit=True) as direct:
        direct.execute(
            f"CREATE DATABASE {other} ENCODING '{encoding}' TEMPLATE template0 LOCALE 'C'"
        )
        try:
            url = postgres_url.replace(other.removesuffix(encoding.lower()), other)
            assert encoding in assert_refused(url, errors.StoreUnavailable)
            with psycopg.connect(url) as there:
                assert "hypervisor" not in str(
                    there.execute("SELECT * FROM pg_namespace").fetchall()
                )
        finally:
            direct.execute(f"DROP DATABASE {other} WITH (FORCE)")


def test_postgres_is_spoken_to_in_utf8_whatever_the_environment_says(postgres_url, monkeypatch):
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    for _ in range(2):
        with hypervisor.open(postgres_url) as hv:
            hv.add([hypervisor.NewTask("☃")])
            (lease,) = hv.claim("w☃")
            assert lease.task.title == "☃"


def test_postgres_without_the_right_to_create(postgres_url):
    with psycopg.connect(postgres_url, autocommit=True) as direct:
        direct.execute("CREATE ROLE visitor LOGIN")
    try:
        assert_refused(postgres_url.replace("postgres:@", "visitor:@"), errors.StoreReadOnly)
    finally:
        with psycopg.connect(postgres_url, autocommit=True) as direct:
            direct.execute("DROP ROLE visitor")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:s3cr3t@localhost:1/none",
        "postgresql://me:s3cr3t@/none?host=/nowhere",
        "postgresql://me@/none?host=/nowhere&password=s3cr3t",
        "postgresql://me:s3cr3t@host.invalid/none",
        "postgresql://me:s3cr3t@localhost:99999/none",
        "postgresql://me:s3cr3t@localhost:port/none",
        "postgresql://me:s3cr3t@localhost/none?nonsense=1",
        "postgresql://me:s3cr3t%zz@localhost/none",
    ],
)
def test_unreachable_postgres(url, caplog):
    with pytest.raises(errors.StoreUnavailable) as caught:
        hypervisor.open(url)
    told = f"{caught.value} {caplog.text}"
    assert str(caught.value).isprintable() and len(str(caught.value)) > 20
    assert "s3cr3t" not in told


def test_no_such_postgres_database(postgres_url):
    name = psycopg.conninfo.conninfo_to_dict(postgres_url)["dbname"]
    with pytest.raises(errors.StoreUnavailable) as caught:
        hypervisor.open(postgres_url.replace(f"/{name}?", "/no_such_database?"))
    assert "does not exist" in str(caught.value) and str(caught.value).isprintable()


def _catalogue(url):
    with psycopg.connect(url) as direct:
        return direct.execute(
            "SELECT table_name, column_name, data_type FROM information_schema.columns "
            "WHERE table_schema = 'hypervisor' ORDER BY 1, 2"
        ).fetchall()
