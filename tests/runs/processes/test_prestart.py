"""A supervisor that starts before it is needed: used, or ended without a trace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

import hypervisor
from hypervisor import app
from hypervisor.resources.process_table import environment, read_process, snapshot
from hypervisor.runs.processes import prestart

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are read from /proc")

DEADLINE = 180.0
HV = [sys.executable, "-I", "-c", "from hypervisor.app import main; main()"]
WAITS = """
import time
from hypervisor.runs.processes import prestart
prestart.start()
print(prestart._waiting[0], flush=True)
time.sleep(300)
"""
CLOSED = """
import os, sys
from hypervisor.runs.processes import prestart
os.close(int(sys.argv[1]))
prestart.start()
assert prestart._waiting is None
assert os.open(os.devnull, os.O_RDONLY) == int(sys.argv[1])
"""


def words_of(pid: int) -> list[str]:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().decode().rstrip("\0").split("\0")
    except OSError:
        return []


def is_gone(pid: int) -> bool:
    process = read_process(pid)
    return process is None or not process.lives


def wait_for(condition) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def waiting(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    prestart.start()
    assert prestart._waiting is not None
    yield prestart._waiting[0]
    prestart.dismiss()


@pytest.fixture
def project(tmp_path):
    """A folder where `hv` runs, with its own runtime folder, by which its processes are
    recognized."""
    (tmp_path / "run").mkdir(mode=0o700)
    env = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path / "run"), "HYPERVISOR_STORE": ""}

    def hv(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*HV, *words],
            cwd=tmp_path,
            env=env,
            stdin=subprocess.DEVNULL,
            text=True,
            capture_output=True,
            timeout=DEADLINE,
            check=False,
        )

    yield hv
    mark = f"XDG_RUNTIME_DIR={tmp_path / 'run'}".encode()
    wait_for(lambda: not [p for p in snapshot().values() if mark in environment(p.pid)])


def test_none_is_started_where_the_last_supervisor_of_the_path_still_works(tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(prestart, "start", lambda: started.append(True))
    with hypervisor.open(tmp_path) as hv:
        store = ["--store", str(tmp_path)]
        app.prestart_supervisor(store)
        assert started == [True]
        launcher: Any = hv.launcher
        assert launcher.acquire_lock() is not None
        os.symlink(tmp_path, tmp_path / "linked")
        app.prestart_supervisor(store)
        app.prestart_supervisor(["--store", str(tmp_path / "linked" / "store.db")])
        assert started == [True]
        assert launcher.release(lambda: False)
        app.prestart_supervisor(store)
        assert started == [True, True]


def test_without_use_it_is_ended_and_collected(waiting):
    prestart.dismiss()
    assert read_process(waiting) is None
    assert prestart.take("nowhere", "/dev/null") is None


def test_it_ends_with_a_client_that_was_killed():
    client = subprocess.Popen([sys.executable, "-I", "-c", WAITS], stdout=subprocess.PIPE)
    assert client.stdout is not None
    pid = int(client.stdout.readline())
    client.kill()
    client.communicate()
    wait_for(lambda: is_gone(pid))


def test_it_becomes_the_supervisor_of_the_given_store(waiting, tmp_path):
    log = tmp_path / "supervisor.log"
    with hypervisor.open(tmp_path / "store.db") as hv:
        assert prestart.take(hv.store.where, str(log)) == waiting
        wait_for(lambda: "supervise" in words_of(waiting))
        wait_for(lambda: hv.launcher.supervisor() == waiting)
    assert log.exists()
    os.kill(waiting, signal.SIGTERM)
    os.waitpid(waiting, 0)


def test_one_that_was_killed_is_not_taken(waiting):
    os.kill(waiting, signal.SIGKILL)
    os.waitid(os.P_PID, waiting, os.WEXITED | os.WNOWAIT)
    assert prestart.take("nowhere", "/dev/null") is None
    assert read_process(waiting) is None


def test_a_run_uses_it(project, tmp_path):
    """Its environment shows it: a supervisor started otherwise gets the store there."""
    (tmp_path / "items").write_text("0.2\n0.3\n0.4\n")
    done = project("run", "--detach", "--items", str(tmp_path / "items"), "--", "sleep")
    assert done.returncode == 0, done.stderr
    with hypervisor.open(tmp_path / ".hypervisor") as hv:
        pid = hv.launcher.supervisor()
    assert pid
    assert "supervise" in words_of(pid)
    assert b"HYPERVISOR_STORE=" in environment(pid)


def test_a_run_that_is_refused_leaves_nothing(project, tmp_path):
    refused = project("run", "--items", str(tmp_path / "nothing"), "--", "true")
    assert refused.returncode == 2, refused.stderr
    assert not (tmp_path / ".hypervisor").exists()


@pytest.mark.parametrize("stream", [0, 1])
def test_it_never_listens_to_what_is_meant_for_a_closed_stream(stream):
    subprocess.run([sys.executable, "-I", "-c", CLOSED, str(stream)], check=True, timeout=DEADLINE)
