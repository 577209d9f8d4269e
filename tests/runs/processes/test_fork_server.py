"""The fork server: its workers become children of the subreaper, and it ends with its owner."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hypervisor.core.places import Places
from hypervisor.resources.process_table import children_of, family, read_process, snapshot
from hypervisor.runs.processes.launcher import LocalLauncher

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="nobody adopts elsewhere")

DEADLINE = 120.0
OWNER = """
import json, os, signal, sys, time
from hypervisor.runs.processes import tree
from hypervisor.runs.processes.fork_server import ForkServer

def work(word):
    print(word, "works in a session of its own:", os.getsid(0) == os.getpid(), flush=True)
    if word == "badly":
        raise ValueError("on purpose")
    if word == "long":
        time.sleep(300)

fork_server, log = ForkServer(work), sys.argv[1]
tree.become_reaper()
"""
TELLS = """
pids = [fork_server.start([word], log) for word in ("well", "badly")]
statuses = [os.waitpid(pid, 0)[1] for pid in pids]
os.kill(fork_server.pid, signal.SIGKILL)
os.waitpid(fork_server.pid, 0)
print(json.dumps([list(map(os.waitstatus_to_exitcode, statuses)), fork_server.start(["x"], log)]))
"""
UNHEARD = """
os.write(fork_server._requests, json.dumps([["well"], log]).encode() + b"\\n")
answer = b""
while not answer.endswith(b"\\n"):
    answer += os.read(fork_server._answers, 100)
fork_server.close()  # as one does that has lost its patience just before the answer came
print(json.dumps(os.waitstatus_to_exitcode(os.waitpid(int(answer), 0)[1])))
"""
STAYS = """
pid = fork_server.start(["long"], log)
print(json.dumps([fork_server.pid, pid]), flush=True)
time.sleep(300)
"""


def owner(script: str, log: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-I", "-c", OWNER + script, str(log), "as long as it takes"]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


def wait_for(condition) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def lives(pid: int) -> bool:
    process = read_process(pid)
    return process is not None and process.lives


def test_its_workers_are_ours_and_tell_how_they_ended(tmp_path):
    log = tmp_path / "log"
    out, _ = owner(TELLS, log).communicate(timeout=DEADLINE)
    assert json.loads(out) == [[0, 1], None]  # a fork server that is gone starts nothing
    text = log.read_text()
    assert "well works in a session of its own: True" in text
    assert text.count("Traceback") == 1 and "ValueError: on purpose" in text


def test_it_goes_with_its_owner_and_its_workers_stay(tmp_path):
    process = owner(STAYS, tmp_path / "log")
    assert process.stdout is not None
    fork_server, worker = json.loads(process.stdout.readline())
    try:
        wait_for(lambda: b"\0work\0long" in Path(f"/proc/{worker}/cmdline").read_bytes())
        wait_for(lambda: b"\0fork-server" in Path(f"/proc/{fork_server}/cmdline").read_bytes())
        wait_for(lambda: {fork_server, worker} == set(children_of(process.pid)))
        assert {each.pid for each in family(process.pid)} == {fork_server, worker}
        assert snapshot()[worker].parent == process.pid
        process.kill()
        process.communicate()
        wait_for(lambda: not lives(fork_server))
        assert lives(worker)
    finally:
        process.kill()
        os.kill(worker, signal.SIGKILL)


def test_without_it_a_worker_is_started_all_the_same(tmp_path, monkeypatch):
    class Gone:
        pid = 1

        def start(self, words, log):
            return None

    launcher = LocalLauncher("store.db", Places(str(tmp_path), str(tmp_path)))
    launcher._fork_server = Gone()  # type: ignore[assignment]
    started: list[tuple[str, ...]] = []

    def start(*words: str) -> int:
        started.append(words)
        return 7

    monkeypatch.setattr(launcher, "_start", start)
    assert launcher.start_worker("b") == 7 and started == [("work", "b")]


def test_one_that_was_stopped_does_not_stop_its_owner(tmp_path):
    script = """
from hypervisor.runs.processes import fork_server as module
module.PATIENCE = 0.2
os.kill(fork_server.pid, signal.SIGSTOP)
answers = [fork_server.start(["late"], log), fork_server.start(["late"], log)]
os.kill(fork_server.pid, signal.SIGCONT)
_, status = os.waitpid(fork_server.pid, 0)  # it ends when it finds that nobody listens
print(json.dumps([*answers, fork_server.start(["late"], log)]))
"""
    out, _ = owner(script, tmp_path / "log").communicate(timeout=DEADLINE)
    assert json.loads(out) == [None, None, None]
    log = tmp_path / "log"
    assert not log.exists() or "late works" not in log.read_text()  # it was not registered


def test_a_worker_that_nobody_knows_of_never_begins(tmp_path):
    log = tmp_path / "log"
    said, _ = owner(UNHEARD, log).communicate(timeout=DEADLINE)
    assert json.loads(said) == 0
    assert not log.exists()
