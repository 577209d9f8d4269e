"""Killed at any moment and repeated, every step completes, and nothing is lost."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from hypervisor.git.hub import Hub, hub_path
from hypervisor.git.snapshot import latest
from tests.git.fingerprint import fingerprint
from tests.git.support import agent, commit_files, init, repository_at, versions, write_files

ROOT = Path(__file__).parents[2]
KILLS = 8


class Bench:
    """A repository, and the steps that are killed."""

    def __init__(self, folder: Path) -> None:
        self.checkout, self.data = folder / "project", folder / "data"
        init(self.checkout)
        write_files(self.checkout, {f"{n % 10}/{n}.txt": f"{n}\n" for n in range(300)})
        commit_files(self.checkout, {"a.txt": "a\n"})
        self.hub = Hub(hub_path(str(self.data), repository_at(self.checkout)))
        self.random = random.Random(7)

    def start(self, step: str, name: str) -> subprocess.Popen[str]:
        words = (step, str(self.checkout), str(self.data), name)
        env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}
        return subprocess.Popen(
            [sys.executable, "-m", "tests.git.killed", *words],
            cwd=ROOT,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, step: str, name: str) -> float:
        """To its end; returns how long it took."""
        started = time.monotonic()
        process = self.start(step, name)
        out, err = process.communicate(timeout=180)
        assert process.returncode == 0 and "done" in out, err
        return time.monotonic() - started

    def kill(self, step: str, name: str, longest: float) -> None:
        """Kill it within that time, every second time together with its git."""
        process = self.start(step, name)
        time.sleep(self.random.uniform(0.3, 1) * longest)
        process.send_signal(signal.SIGKILL)
        if self.random.random() < 0.5:
            for pid in self.gits():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        process.communicate(timeout=180)

    def gits(self) -> list[int]:
        """The processes that work in our folders."""
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.readlink(f"/proc/{name}/cwd").startswith(str(self.data)):
                    found.append(int(name))
            except OSError:
                continue
        return found

    def folder(self, name: str) -> str:
        return str(self.data / "git" / "work" / name)


@pytest.fixture
def bench(tmp_path):
    bench = Bench(tmp_path)
    before = fingerprint(bench.checkout)
    yield bench
    assert fingerprint(bench.checkout) == before
    bench.hub.git.run("fsck", "--strict", "--no-dangling")
    left = [
        path for path in bench.data.rglob("*") if ".new-" in path.name or path.name[:4] == "new-"
    ]
    assert left == []


def test_making_hub_and_workspace(bench):
    longest = bench.run("create", "measured")
    for number in range(KILLS):
        name = f"task{number % 4}"
        if number % 4 == 0:
            subprocess.run(["rm", "-rf", str(bench.data / "git")], check=True)
        bench.kill("create", name, longest)
    for number in range(4):
        bench.run("create", f"task{number}")
        out = agent(bench.folder(f"task{number}"), "git status --porcelain; git ls-files | wc -l")
        assert out.strip() == "301"


def test_a_snapshot(bench):
    bench.run("create", "task")
    longest = bench.run("snapshot", "task")
    for number in range(KILLS):
        script = f"echo {number} > a.txt; echo {number} > new{number}.txt"
        commit = "git add -A; git commit -qm x" if number % 2 else "true"
        agent(bench.folder("task"), f"{script}; {commit}")
        bench.kill("snapshot", "task", longest)
    bench.run("snapshot", "task")
    snapshot = latest(bench.hub, "task", 1)
    assert snapshot is not None
    names = bench.hub.git.names("ls-tree", "-r", "-z", "--name-only", snapshot.commit)
    assert {f"new{number}.txt" for number in range(KILLS)} <= set(names)
    assert len(names) == 301 + KILLS


def test_collecting(bench):
    bench.run("create", "task")
    longest = bench.run("collect", "task")
    for number in range(KILLS):
        script = f"echo {number} > a.txt; git commit -qam {number}; echo {number} > b.txt"
        agent(bench.folder("task"), script)
        bench.kill("collect", "task", longest)
    bench.run("collect", "task")
    head = bench.hub.refs("refs/hv/tasks")["refs/hv/tasks/task/1"]
    subjects = bench.hub.git.text("log", "--format=%s", head).splitlines()
    assert subjects == ["Work", *map(str, reversed(range(KILLS))), "files"]
    assert bench.hub.git.text("cat-file", "blob", f"{head}:b.txt") == f"{KILLS - 1}"


def test_removal(bench):
    longest = 0.0
    for number in range(KILLS):
        name = f"task{number}"
        bench.run("create", name)
        script = f"""echo s{number} > a.txt; git stash -q; echo c{number} > a.txt; git commit -qam x
            git reset -q --hard HEAD~1; echo d{number} > a.txt"""
        agent(bench.folder(name), script)
        if longest:
            bench.kill("remove", name, longest)
        longest = max(longest, bench.run("remove", name))
        assert not os.path.exists(bench.folder(name))
        assert os.listdir(bench.data / "git" / "trash") == []
        expected = {f"s{number}\n", f"c{number}\n", f"d{number}\n"}
        assert expected <= versions(bench.hub.git, "a.txt")
