"""The merge queue killed again and again: nothing is lost, nothing is merged twice."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from hypervisor.resources.process_table import family
from tests.git.merger import read_ledger
from tests.git.repositories import Repo, bare_clone, write_script

ROOT = Path(__file__).parents[2]
KILLS = 22  # for each mode
ROUND = 6  # entries
MAX_SECONDS = 600.0
CHECK = """#!/bin/sh
if ls bad-* >/dev/null 2>&1; then exit 1; fi
git write-tree >> '{log}'
"""


class Killing:
    """A lane whose merger is killed at random moments, while entries keep coming."""

    def __init__(self, folder: Path, mode: str, strategy: str, seed: int) -> None:
        self.folder, self.mode, self.strategy = folder, mode, strategy
        self.random = random.Random(seed)
        self.repo = Repo(folder / "repository")
        self.base = self.repo.commit({"f": "1\n"}, "first")
        self.hub = bare_clone(self.repo, folder / "hub.git")
        self.queue: list[tuple[str, ...]] = []
        self.bad: set[str] = set()
        self.moments: list[str] = []
        self.target = self.repo.git
        self.ref = "refs/heads/hv/kept" if mode == "branch" else "refs/heads/main"
        self.work = Repo(folder / "work")
        self.work.git.run("fetch", "--quiet", self.hub.folder, "main:base")
        self.work.git.run("checkout", "--quiet", "base")
        if mode == "push":
            self.target = bare_clone(self.repo, folder / "remote.git")
            self.repo.git.run("remote", "add", "origin", f"file://{self.target.folder}")
        self.target.run("config", "core.logAllRefUpdates", "always")
        check = write_script(folder / "check", CHECK.format(log=folder / "passed"))
        facts = {
            "hub": self.hub.folder,
            "repository": str(self.repo.folder),
            "target": self.ref.removeprefix("refs/heads/"),
            "mode": mode,
            "base": self.base,
            "width": 2,
            "commands": [check],
        }
        (folder / "lane.json").write_text(json.dumps(facts))

    def add(self) -> None:
        """Some more finished tasks, one of which fails verification."""
        first = len(self.queue) + 1
        bad = self.random.randrange(first, first + ROUND)
        for n in range(first, first + ROUND):
            name = f"t{n}"
            kind = "bad" if n == bad else "good"
            head = self.work.branch(name, "base", {f"{kind}-{n}": f"{n}\n"})
            if n == bad:
                self.bad.add(name)
            self.queue.append((name, head, self.base, f"{name} 1", self.strategy))
        refs = [f"refs/heads/t{n}:refs/hv/tasks/t{n}/1" for n in range(first, first + ROUND)]
        self.hub.run("fetch", "--quiet", str(self.work.folder), *refs)
        (self.folder / "queue.json").write_text(json.dumps(self.queue))

    def start(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.git.merger", str(self.folder)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    def kill(self, process: subprocess.Popen[str], longest: float) -> bool:
        """Kill it, and in mode branch often all that it has started too; False: it had ended.
        Most kills come at the critical moments: shortly after something is about to land, or has
        landed."""
        moment = self.random.choice(("any", "intent", "landed"))
        after = self.random.uniform(0.0, longest if moment == "any" else 0.05)
        watched = self._watched(moment)
        before = _content(watched)
        while watched is not None and process.poll() is None and _content(watched) == before:
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.001)
        with suppress(subprocess.TimeoutExpired):
            process.wait(after)
        if process.poll() is not None:
            return False
        self.moments.append(moment)
        children = [child.pid for child in family(process.pid)]
        process.send_signal(signal.SIGKILL)
        process.wait()
        if self.mode == "branch" and self.random.random() < 0.5:
            for child in children:
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
        return True

    def _watched(self, moment: str) -> Path | None:
        """The file of the ref that changes at this moment."""
        if moment == "intent":
            return Path(self.hub.folder, "refs/hv/lanes/lane/landing")
        git_dir = self.target.text("rev-parse", "--absolute-git-dir")
        return Path(git_dir, self.ref) if moment == "landed" else None

    def subjects(self) -> list[str]:
        words = ("log", "--no-merges", "--format=%s", f"{self.base}..{self.ref}")
        return self.target.text(*words).splitlines()


def _content(path: Path | None) -> bytes:
    try:
        return b"" if path is None else path.read_bytes()
    except FileNotFoundError:
        return b""


def passed_trees(folder: Path) -> set[str]:
    return set((folder / "passed").read_text().split())


@pytest.mark.parametrize(
    "mode, strategy, seed", [("branch", "merge", 1), ("push", "squash", 2), ("local", "rebase", 3)]
)
def test_killed_at_random_moments_nothing_is_lost_or_merged_twice(tmp_path, mode, strategy, seed):
    lane = Killing(tmp_path, mode, strategy, seed)
    deadline = time.monotonic() + MAX_SECONDS
    kills, duration = 0, 1.0
    while kills < KILLS:
        assert time.monotonic() < deadline, f"only {kills} kills in {MAX_SECONDS:g} s"
        if len(read_ledger(tmp_path)) == len(lane.queue):
            lane.add()
        started = time.monotonic()
        if lane.kill(lane.start(), duration):
            kills += 1
        else:
            duration = max(0.3, time.monotonic() - started)
    while len(read_ledger(tmp_path)) < len(lane.queue):
        assert time.monotonic() < deadline + 60, "it does not come to an end"
        assert lane.start().wait() == 0
    check(lane)
    assert set(lane.moments) == {"any", "intent", "landed"}


def check(lane: Killing) -> None:
    ledger = {line["id"]: line for line in read_ledger(lane.folder)}
    assert sorted(ledger) == sorted(entry[0] for entry in lane.queue)
    assert len(ledger) == len(read_ledger(lane.folder)), "an entry was decided twice"
    failed = {name for name, line in ledger.items() if line["kind"] == "EntryFailed"}
    assert failed == lane.bad
    landed = set(ledger) - failed
    assert {ledger[name]["kind"] for name in landed} == {"EntryLanded"}
    assert not [name for name in landed if ledger[name]["already"]]
    assert sorted(lane.subjects()) == sorted(f"{name} 1" for name in landed)
    for name in landed:
        commit = str(ledger[name]["commit"])
        assert lane.target.succeeds("merge-base", "--is-ancestor", commit, lane.ref)
    moves = lane.target.text("reflog", "show", "--format=%T", lane.ref).split()
    verified = passed_trees(lane.folder) | {lane.target.text("rev-parse", f"{lane.base}^{{tree}}")}
    assert set(moves) <= verified
    assert lane.target.text("fsck", "--connectivity-only", "--no-dangling") == ""
    if lane.mode == "local":
        assert lane.repo.git.text("status", "--porcelain") == ""
    else:
        assert lane.repo.tip() == lane.base
