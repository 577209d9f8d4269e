"""What a cluster refuses: open Rays, passwords that Ray would keep, unverified connections."""

import pytest

from hypervisor.cluster.security import check_store, is_loopback, refuse_open_cluster
from hypervisor.core.errors import ClusterError, InvalidInput


@pytest.fixture(autouse=True)
def no_settings_of_libpq(monkeypatch):
    for name in ("PGSSLMODE", "PGHOST", "PGSERVICE", "PGHOSTADDR"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("store", ["", "/tmp/store.db"])
def test_sqlite_is_for_one_host(store):
    with pytest.raises(InvalidInput, match="needs a PostgreSQL store"):
        check_store(store)


@pytest.mark.parametrize(
    "store",
    [
        "postgresql://hv@localhost/work",
        "postgresql://hv@127.0.0.1:5433/work",
        "postgresql:///work?host=/run/postgresql",
        "postgresql://hv@db.example.org/work?sslmode=verify-full",
        "postgresql://hv@10.0.0.5/work?sslmode=disable",
    ],
)
def test_a_store_on_this_host_or_with_a_stated_mode_is_used(store):
    assert check_store(store) == store


@pytest.mark.parametrize("host", ["db.example.org", "10.0.0.5", "localhost,10.0.0.5"])
def test_elsewhere_the_mode_must_be_stated(host, monkeypatch):
    store = f"postgresql://hv@{host}/work"
    with pytest.raises(InvalidInput, match="sslmode=verify-full"):
        check_store(store)
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    assert check_store(store)


@pytest.mark.parametrize(
    "store", ["postgresql://hv:secret@localhost/work", "postgresql://localhost/w?password=secret"]
)
def test_a_password_never_reaches_ray(store):
    with pytest.raises(InvalidInput, match=r"\.pgpass") as refused:
        check_store(store)
    assert "secret" not in str(refused.value)
    assert check_store(store, is_kept_by_ray=False) == store


@pytest.mark.parametrize("address", ["127.0.0.1:6379", "localhost:6379", "[::1]:6379"])
def test_a_loopback_address_is_recognized(address):
    assert is_loopback(address)
    refuse_open_cluster(address, asks_for_token=False)


@pytest.mark.parametrize("address", ["10.0.0.5:6379", "head.example.org:6379"])
def test_an_open_ray_elsewhere_is_refused(address):
    refuse_open_cluster(address, asks_for_token=True)
    with pytest.raises(ClusterError, match="RAY_AUTH_MODE=token"):
        refuse_open_cluster(address, asks_for_token=False)
