"""Three hosts in network namespaces under a real Ray: one is cut off, one killed, one paused.

No task is lost, none is done twice, and no two attempts of a task run at the same moment.
"""

from __future__ import annotations

import json
import os
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import psycopg
import pytest

import hypervisor
from tests.cli.test_json_schema import problems
from tests.cluster import witness
from tests.cluster.namespaces import NamespaceHost, Network, SocketProxy, unavailable
from tests.cluster.ray_host import until
from tests.support.ungoverned import UNGOVERNED

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(bool(unavailable()), reason=unavailable() or "available"),
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed"),
]
ROUNDS = int(os.environ.get("ROUNDS", "20"))
TASKS = int(os.environ.get("TASKS", "2000"))
LEASE = 6.0  # seconds
OUTAGE = LEASE * 1.5  # longer than a lease with its margin
SETTLE = 120.0  # seconds for a round to end
CONFIG = f'[hosts]\nlease = "{LEASE:.0f}s"\n{UNGOVERNED}'
HEAD_PORT = 6379


class Fleet:
    """The hosts, a store that they reach over the bridge, and Ray on all of them."""

    def __init__(self, socket_url: str, folder: Path) -> None:
        self.network = Network()
        parts = psycopg.conninfo.conninfo_to_dict(socket_url)
        self.proxy = SocketProxy(f"{parts['host']}/.s.PGSQL.5432", self.network.address)
        place = f"{self.network.address}:{self.proxy.port}/{parts['dbname']}"
        self.store = f"postgresql://{parts['user']}@{place}?sslmode=disable"
        self.witness = folder / "witness"
        self.witness.mkdir()
        self.hosts = [NamespaceHost(self.network, number) for number in range(3)]
        self.head = f"{self.hosts[0].address}:{HEAD_PORT}"

    def env(self, host: NamespaceHost) -> dict[str, str]:
        return {
            "HOME": str(host.home),
            "PATH": os.environ["PATH"],
            "RAY_TMPDIR": str(host.home),
            "HYPERVISOR_STORE": self.store,
            "USER": "tester",
        }

    def hv(self, host: NamespaceHost, *words: str, given: str = "", code: int = 0) -> str:
        command = [sys.executable, "-I", "-m", "hypervisor", *words]
        done = host.run(*command, env=self.env(host), given=given)
        assert done.returncode == code, (host.name, words, done.stdout[-900:], done.stderr[-900:])
        return str(done.stdout)

    def up(self) -> None:
        first, *others = self.hosts
        for host in self.hosts:
            self.boot(host)
        self.hv(first, "cluster", "up", "--listen", self.head)
        for host in others:
            self.join(host)

    def boot(self, host: NamespaceHost) -> None:
        host.start()
        with hypervisor.open(self.store) as hv:
            name = Path(hv.places.data).name
        data = host.home / ".local/share/hypervisor" / name
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        (data / "config.toml").write_text(CONFIG)

    def join(self, host: NamespaceHost) -> None:
        token = self.hosts[0].home / ".ray" / "auth_token"
        options = ("--token-file", str(token), "--node-ip", host.address, "--json")
        joined = json.loads(self.hv(host, "cluster", "join", self.head, *options))
        assert joined["supervisor"] and problems("cluster join", joined) == []

    def end(self) -> None:
        for host in self.hosts:
            host.wake()
            host.remove()
        self.proxy.close()
        self.network.remove()


@pytest.fixture
def fleet(postgres_url, tmp_path):
    made = Fleet(postgres_url, tmp_path)
    try:
        made.up()
        yield made
    finally:
        made.end()


def disturb(fleet: Fleet, kind: str, host: NamespaceHost) -> None:
    """Something happens to a host, and ends after a while."""
    if kind == "cut":
        host.cut_off()
        time.sleep(OUTAGE)
        host.reconnect()
    elif kind == "pause":
        host.pause()
        time.sleep(OUTAGE)
        host.wake()
    else:
        host.kill()
        time.sleep(OUTAGE)
        fleet.boot(host)
        fleet.join(host)


def one_round(fleet: Fleet, hv: hypervisor.Hypervisor, number: int, kind: str) -> None:
    batch, host = f"round{number}", fleet.hosts[1 + number // 3 % 2]
    items = "".join(f"{batch}-{item}\n" for item in range(TASKS // ROUNDS))
    script = (sys.executable, "-I", str(Path(witness.__file__)), str(fleet.witness))
    command = " ".join((*script, "{}", "$(hostname)", "0.5"))
    run = ("run", "--name", batch, "--detach", "--shell", "--", command)
    fleet.hv(fleet.hosts[0], *run, given=items)
    began = time.monotonic()
    pattern = f"{batch}-*.{host.name}.*"
    until(lambda: len(list(fleet.witness.glob(pattern))) > 1, "attempts on that host")
    disturb(fleet, kind, host)
    until(lambda: hv.summary(batch).succeeded, f"the end of {batch} ({kind})", SETTLE)
    print(f"{batch}: {kind} {host.name}, {time.monotonic() - began:.0f} s", flush=True)


def test_lost_hosts_lose_and_double_nothing(fleet):
    with hypervisor.open(fleet.store) as hv:
        for number in range(ROUNDS):
            one_round(fleet, hv, number, ("cut", "pause", "kill")[number % 3])
        runs = witness.read(fleet.witness)
        again = [some for some in runs.values() if sum(run.done for run in some) > 1]
        print(
            f"{len(runs)} tasks, {sum(map(len, runs.values()))} attempts, {len(again)} ended twice"
        )
        assert witness.overlaps(runs) == []
        assert len(runs) == TASKS // ROUNDS * ROUNDS
        for number in range(ROUNDS):
            assert hv.summary(f"round{number}").states == {"done": TASKS // ROUNDS}
