"""A real Ray on this host: it starts the supervisor, and losing it loses no work."""

from __future__ import annotations

import os
import signal
from importlib.util import find_spec
from pathlib import Path

import pytest

import hypervisor
from tests.cli.test_json_schema import problems
from tests.cluster.ray_host import RayHost, until

pytestmark = pytest.mark.skipif(
    find_spec("ray") is None, reason="Ray is not installed: sh scripts/venv.sh cluster"
)
WITNESS = (
    'echo "began $1" >> "$2"; while [ ! -e "$3" ]; do sleep 0.1; done; echo "ended $1" >> "$2"'
)


@pytest.fixture(scope="module")
def ray_host(postgres_server):
    url = postgres_server.new_database()
    host = RayHost(url)
    with hypervisor.open(url) as hv:
        host.configure(hv)
    try:
        yield host
    finally:
        host.end()
        postgres_server.drop_database(url)


@pytest.fixture(scope="module")
def first(ray_host):
    """The answer of the first `hv cluster up`."""
    return ray_host.up()


def supervisors(host):
    return [pid for pid, line in host.processes().items() if line.endswith("supervise --stay")]


def keepers(host):
    return [pid for pid, line in host.processes().items() if "ray::SupervisorKeeper" in line]


def witnessed(host):
    path = host.home / "witness"
    return path.read_text().splitlines() if path.exists() else []


def test_one_supervisor_is_started_in_its_own_session(ray_host, first):
    assert first["launcher"] == "ray" and first["head_started"]
    assert problems("cluster up", first) == []
    (host,) = first["hosts"]
    assert supervisors(ray_host) == [host["supervisor"]]
    assert os.getsid(host["supervisor"]) == host["supervisor"]
    names = {line.partition(" ")[0] for line in ray_host.ray_processes().values()}
    assert "ray::Watcher" in names


def test_nothing_of_ray_reaches_the_supervisor_and_the_store_is_in_no_argument(ray_host, first):
    (pid,) = supervisors(ray_host)
    entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    names = {entry.partition(b"=")[0].decode() for entry in entries}
    assert not {name for name in names if name.startswith("RAY_")}
    assert {"HYPERVISOR_STORE", "HV_LAUNCHER"} <= names
    assert not [line for line in ray_host.processes().values() if "postgresql" in line]
    token = ray_host.home / ".ray" / "auth_token"
    assert token.stat().st_mode & 0o777 == 0o600


class TestLosses:
    """In this order: an attempt runs through all of them."""

    def test_a_killed_keeper_leaves_the_supervisor_and_its_work(self, ray_host, first):
        go, witness = ray_host.home / "go", ray_host.home / "witness"
        shell = ("sh", "-c", WITNESS, "sh", "{}", str(witness), str(go))
        ray_host.hv("run", "--name", "w", "--detach", "--", *shell, given="a\nb\n")
        until(lambda: len(witnessed(ray_host)) == 2, "two attempts")
        (keeper,) = keepers(ray_host)
        before = supervisors(ray_host)
        os.kill(keeper, signal.SIGKILL)
        until(lambda: keepers(ray_host) not in ([], [keeper]), "another keeper")
        (look,) = until(lambda: adopted(ray_host), "the keeper to find the supervisor")
        assert [look["supervisor"]] == before == supervisors(ray_host)

    def test_a_lost_cluster_is_replaced_and_the_work_continues(self, ray_host, first):
        before = supervisors(ray_host)
        ray_host.end_ray()
        assert supervisors(ray_host) == before
        again = ray_host.up()
        assert [host["supervisor"] for host in again["hosts"]] == before
        (ray_host.home / "go").touch()
        until(lambda: ray_host.json("summary", "w")["succeeded"], "the end of the batch")
        lines = witnessed(ray_host)
        assert sorted(lines) == ["began a", "began b", "ended a", "ended b"]

    def test_a_killed_supervisor_is_started_again(self, ray_host, first):
        (pid,) = supervisors(ray_host)
        os.kill(pid, signal.SIGKILL)
        until(lambda: supervisors(ray_host) not in ([], [pid]), "another supervisor")


def registered(host, pid):
    hosts = [each["host"] for each in host.json("cluster", "status")["hosts"]]
    return next((each for each in hosts if each["pid"] == pid), None)


def adopted(host):
    launched = host.json("cluster", "status")["launched"]
    return [look for look in launched if look["supervisor"]]


class TestTakingDown:
    def test_a_drained_host_finishes_and_is_not_started_again(self, ray_host, first):
        (pid,) = supervisors(ray_host)
        host = until(lambda: registered(ray_host, pid), "the supervisor in the store")
        assert (host["state"], host["versions"]["ray"][:2]) == ("up", "2.")
        assert host["launcher"].startswith("ray:")
        done = ray_host.json("cluster", "down", "--wait", "60s")
        assert problems("cluster down", done) == []
        assert (done["released"], done["draining"], done["trouble"]) == (1, [host["name"]], "")
        until(lambda: supervisors(ray_host) == keepers(ray_host) == [], "its processes to end")
        left = ray_host.json("cluster", "status", "--all")
        assert problems("cluster status", left) == []
        assert [each["host"]["state"] for each in left["hosts"]] == ["gone"]
        assert ray_host.json("cluster", "status")["hosts"] == []
