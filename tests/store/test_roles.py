"""The role for workers of docs/how-to/share-a-store.md: it can work, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest

import hypervisor
from hypervisor.core.errors import StoreReadOnly
from hypervisor.store.postgres import PostgresDatabase

PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/share-a-store.md"
SQL = re.search(r"^```sql\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
OWNER, WORKER = "hv_owner", "hv_worker"


def run(url, statement):
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement)


def url_of(url, role):
    """The server of the tests trusts all local users."""
    return re.sub("//[^@/]*@", f"//{role}@", url)


@pytest.fixture(scope="module")
def database(postgres_server):
    assert SQL is not None
    url = postgres_server.new_database()
    name = psycopg.conninfo.conninfo_to_dict(url)["dbname"]
    first, _, rest = SQL[1].partition("-- After the first `hv` command")
    run(url, first.replace("DATABASE work", f"DATABASE {name}"))
    hypervisor.open(url_of(url, OWNER)).close()
    run(url_of(url, OWNER), rest.partition("\n")[2])
    yield url
    elsewhere = postgres_server.new_database()
    postgres_server.drop_database(url)
    for role in (WORKER, OWNER):
        run(elsewhere, f"DROP ROLE {role}")
    postgres_server.drop_database(elsewhere)


@pytest.fixture
def worker_url(database):
    return url_of(database, WORKER)


def test_a_worker_can_add_claim_complete_and_leave_evidence(worker_url):
    with hypervisor.open(worker_url) as hv:
        hv.add([hypervisor.NewTask("a"), hypervisor.NewTask("b")])
        (lease,) = hv.claim("w")
        hv.heartbeat([lease.token])
        hv.receipt(lease.token, "read a file")
        _, (following,) = hv.complete_and_claim([(lease.token, {"ok": 1})], "w")
        hv.fail(following.token, "no")
        assert hv.events() and hv.verify()


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE hypervisor.tasks",
        "ALTER TABLE hypervisor.tasks ADD COLUMN x int",
        "CREATE TABLE hypervisor.mine (x int)",
        "CREATE TABLE public.mine (x int)",
        "UPDATE hypervisor.schema_version SET version = 1",
        "DELETE FROM hypervisor.receipts",
        "UPDATE hypervisor.receipts SET task = ''",
        "TRUNCATE hypervisor.events",
        "CREATE ROLE other",
    ],
)
def test_a_worker_cannot_change_the_schema_or_the_evidence(worker_url, statement):
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        run(worker_url, statement)


def test_a_worker_does_not_migrate(worker_url, database):
    run(url_of(database, OWNER), "UPDATE hypervisor.schema_version SET version = 5")
    with pytest.raises(StoreReadOnly):
        PostgresDatabase(worker_url)
