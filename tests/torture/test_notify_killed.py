"""The process that delivers notices is killed again and again: each notice arrives, in order,
and one that arrives twice was in flight at a kill."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import hypervisor
from hypervisor import NewTask
from hypervisor.notifications.sql import notices
from tests.support.receiver import Receiver

TASKS = 200
DEADLINE = 300.0
PROGRAM = (
    sys.executable,
    "-I",
    "-c",
    "from hypervisor.entry_points import serve; serve()",
    "notify",
)


class Frame:
    """A store whose tasks are done, and processes that deliver the notices."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "runtime").mkdir(mode=0o700)
        self.env = {
            "PATH": os.defpath,
            "HOME": str(folder),
            "XDG_RUNTIME_DIR": str(folder / "runtime"),
            "HYPERVISOR_STORE": str(folder / "store"),
        }
        self.hv = hypervisor.open(folder / "store", relaxed=True)
        self.kills = 0

    def finish(self, count: int) -> None:
        self.hv.add([NewTask(f"task {n}") for n in range(count)])
        for lease in self.hv.claim("worker", limit=count):
            self.hv.complete(lease.token)

    def start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(PROGRAM, env=self.env, cwd=self.folder)

    def deliver_under_fire(self, arrived: Callable[[], int], dice: random.Random) -> None:
        deadline = time.monotonic() + DEADLINE
        while (
            any(count for count, _ in self.hv.store.read(notices.waiting).values()) or not arrived()
        ):
            assert time.monotonic() < deadline, f"{arrived()} of {TASKS} arrived"
            process = self.start()
            enough = arrived() + dice.randint(1, 25)
            while arrived() < enough and process.poll() is None:
                assert time.monotonic() < deadline
                time.sleep(0.001)
            time.sleep(dice.random() * 0.004)
            self.kill(process)

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            self.kills += 1
        process.wait()


@pytest.fixture
def scene(tmp_path):
    made = Frame(tmp_path)
    yield made
    made.hv.close()


def check(got: list[int], kills: int) -> None:
    first = list(dict.fromkeys(got))
    assert len(first) == TASKS
    assert first == sorted(first)
    assert len(got) - TASKS <= kills


@pytest.mark.parametrize("seed", [1])
def test_a_command_hears_of_everything(scene, seed):
    kept = scene.folder / "got"
    scene.hv.add_rule("log", ["done"], ["sh", "-c", 'cat >> "$0"', str(kept)])
    scene.finish(TASKS)

    def lines():
        return kept.read_bytes().count(b"\n") if kept.exists() else 0

    scene.deliver_under_fire(lines, random.Random(seed))
    got = [json.loads(line)["number"] for line in kept.read_text().splitlines()]
    assert scene.kills >= 3
    check(got, scene.kills)


def test_a_webhook_hears_of_everything(scene):
    receiver = Receiver()
    try:
        scene.hv.add_rule("hook", ["done"], address=receiver.url + "/s3cr3t")
        scene.finish(TASKS)
        scene.deliver_under_fire(lambda: len(receiver.got), random.Random(3))
        got = [each["number"] for each in receiver.got]
        assert got == sorted(got)
        check(got, scene.kills)
    finally:
        receiver.close()


def test_a_webhook_that_fails_at_first_gets_all_in_order(scene):
    receiver = Receiver(503, 500)
    try:
        scene.hv.add_rule("hook", ["done"], address=receiver.url + "/s3cr3t")
        scene.finish(10)
        process = scene.start()
        assert process.wait(DEADLINE) == 0, "it ends by itself once nothing is left"
        assert [each["title"] for each in receiver.got] == [f"task {n}" for n in range(10)]
        assert receiver.requests == 12
    finally:
        receiver.close()


def test_a_receiver_that_hangs_holds_up_no_other(scene):
    kept = scene.folder / "got"
    scene.hv.add_rule("hangs", ["done"], ["sleep", "1000"])
    scene.hv.add_rule("log", ["done"], ["sh", "-c", 'cat >> "$0"', str(kept)])
    scene.finish(5)
    process = scene.start()
    try:
        deadline = time.monotonic() + DEADLINE
        while not kept.exists() or kept.read_bytes().count(b"\n") < 5:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        os.killpg(_sleeper(process.pid), signal.SIGKILL)
        scene.kill(process)


def _sleeper(parent: int) -> int:
    """The command that hangs: our own child's child."""
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            after = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(after[1]) == parent:
            return int(entry.parent.name)
    raise AssertionError("no command is running")
