"""The self-test on a PostgreSQL server, in databases of its own."""

from __future__ import annotations

import psycopg
import pytest

from hypervisor.core.errors import StoreUnavailable
from hypervisor.selftest.network import WORKERS
from hypervisor.selftest.run import Scope, run_selftest


def test_it_holds_on_a_server_and_leaves_nothing_there(postgres_server, monkeypatch):
    monkeypatch.setattr("os.nice", lambda increment: 0)  # the other tests stay as they are
    url = postgres_server.new_database()
    report = run_selftest(url, Scope(4.0, 5, ("network", "zombies"), prove=True))
    results = {result.part: result for result in report.results}
    assert report.held, report
    faults = results["network"].figures
    assert faults["claims"] >= WORKERS and results["zombies"].outcome == "held"
    assert {result.bug for result in report.bugs} == {"no-fence", "early-reclaim"}
    with psycopg.connect(url) as connection:
        names = [row[0] for row in connection.execute("SELECT datname FROM pg_database")]
    assert not [name for name in names if name.startswith("hv_selftest")]


def test_a_role_that_may_not_create_databases_is_told(postgres_server, monkeypatch):
    monkeypatch.setattr("os.nice", lambda increment: 0)
    url = postgres_server.new_database()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE ROLE plain_user LOGIN")
    limited = f"{url}&user=plain_user" if "?" in url else f"{url}?user=plain_user"
    with pytest.raises(StoreUnavailable, match="CREATEDB"):
        run_selftest(limited, Scope(1.0, 5, ("zombies",)))
