"""The merge queue killed again and again: nothing is lost, merged twice or merged unverified."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from contextlib import closing, suppress
from itertools import cycle
from pathlib import Path

from hypervisor.resources.process_table import family
from hypervisor.selftest.crew import Child, ForkServer
from hypervisor.selftest.merge_job import read_ledger
from hypervisor.selftest.part import Figures, Setting, Skipped, Violation, ensure
from hypervisor.selftest.repositories import Repo, bare_clone, write_script

ROUND = 6  # entries
GRACE = 300.0  # seconds
LANE_SECONDS = 3.0  # of kills, before a lane is checked
LANES = (("branch", "merge"), ("push", "squash"), ("local", "rebase"))
CHECK = """#!/bin/sh
if ls bad-* >/dev/null 2>&1; then exit 1; fi
git write-tree >> '{log}'
"""


def run(setting: Setting) -> Figures:
    if setting.kind != "sqlite":
        raise Skipped("the same with either database; run with the default store")
    if shutil.which("git") is None:
        raise Skipped("git is not installed")
    figures = {"kills": 0, "merges": 0}
    with closing(ForkServer("hypervisor.selftest.merge_job")) as crew:
        for number, (mode, strategy) in enumerate(cycle(LANES)):
            if number >= len(LANES) and setting.is_over:
                return figures
            folder = setting.folder / f"{mode}{number}"
            folder.mkdir()
            lane = MergeStorm(crew, folder, mode, strategy, setting.seed + number)
            lane.bug = setting.bug
            figures["kills"] += lane.rage(min(setting.seconds / len(LANES), LANE_SECONDS))
            lane.finish()
            check(lane)
            figures["merges"] += len(lane.subjects())
            setting.tell(f"{figures['kills']} kills")
            shutil.rmtree(folder)
    return figures


class MergeStorm:
    """A lane whose merger is killed at random moments, while entries keep coming."""

    def __init__(self, crew: ForkServer, folder: Path, mode: str, strategy: str, seed: int) -> None:
        self._crew, self.folder, self.mode, self.strategy = crew, folder, mode, strategy
        self.bug: str | None = None
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

    def rage(self, seconds: float, least: int = 1) -> int:
        """Kill it for this long. Returns how often."""
        deadline = time.monotonic() + seconds
        kills, longest = 0, 1.0
        while kills < least or time.monotonic() < deadline:
            if time.monotonic() > deadline + GRACE:
                raise Violation(f"only {kills} kills in {seconds + GRACE:g} s")
            if len(read_ledger(self.folder)) == len(self.queue):
                self.add()
            started = time.monotonic()
            if self.kill(self.start(), longest):
                kills += 1
            else:
                longest = max(0.3, time.monotonic() - started)
        return kills

    def finish(self) -> None:
        deadline = time.monotonic() + GRACE
        while len(read_ledger(self.folder)) < len(self.queue):
            ensure(time.monotonic() < deadline, "the merge queue does not come to an end")
            ensure(self.start().wait() == 0, "the merge queue failed")

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

    def start(self) -> Child:
        child = self._crew.start("merge", str(self.folder), bug=self.bug)
        child.hear()
        return child

    def kill(self, process: Child, longest: float) -> bool:
        """Kill it, and in mode branch often all that it has started too; False: it had ended.
        Most kills come at the critical moments: shortly after something is about to land, or has
        landed."""
        moment = self.random.choice(("any", "intent", "landed"))
        after = self.random.uniform(0.0, longest if moment == "any" else 0.05)
        watched = self._watched(moment)
        before = _content(watched)
        while watched is not None and not self._has_ended(process) and _content(watched) == before:
            time.sleep(0.001)
        deadline = time.monotonic() + after
        while time.monotonic() < deadline and not self._has_ended(process):
            time.sleep(0.002)
        if self._has_ended(process):
            return False
        self.moments.append(moment)
        children = [child.pid for child in family(process.pid)]
        process.kill()
        process.wait()
        if self.mode == "branch" and self.random.random() < 0.5:
            for child in children:
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
        return True

    def _has_ended(self, process: Child) -> bool:
        return process.pid in self._crew.ended()

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


def check(lane: MergeStorm) -> None:
    """Raises Violation."""
    lines = read_ledger(lane.folder)
    ledger = {line["id"]: line for line in lines}
    ensure(sorted(ledger) == sorted(entry[0] for entry in lane.queue), "an entry was lost")
    ensure(len(ledger) == len(lines), "an entry was decided twice")
    failed = {name for name, line in ledger.items() if line["kind"] == "EntryFailed"}
    ensure(failed == lane.bad, f"failed: {sorted(failed)}, but bad are {sorted(lane.bad)}")
    landed = set(ledger) - failed
    kinds = {ledger[name]["kind"] for name in landed}
    ensure(kinds <= {"EntryLanded"}, f"entries ended as {kinds}")
    again = [name for name in landed if ledger[name]["already"]]
    ensure(not again, f"landed before it was decided: {again}")
    once = sorted(lane.subjects()) == sorted(f"{name} 1" for name in landed)
    ensure(once, "the target does not have each merged change exactly once")
    for name in landed:
        commit = str(ledger[name]["commit"])
        there = lane.target.succeeds("merge-base", "--is-ancestor", commit, lane.ref)
        ensure(there, f"{name} was reported as merged and is not in the target")
    moves = lane.target.text("reflog", "show", "--format=%T", lane.ref).split()
    verified = passed_trees(lane.folder) | {lane.target.text("rev-parse", f"{lane.base}^{{tree}}")}
    ensure(set(moves) <= verified, "the target was at a commit that was not verified")
    problems = lane.target.text("fsck", "--connectivity-only", "--no-dangling")
    ensure(problems == "", f"git fsck: {problems}")
    if lane.mode == "local":
        ensure(lane.repo.git.text("status", "--porcelain") == "", "the checkout is not clean")
    else:
        ensure(lane.repo.tip() == lane.base, "the user's branch was moved")
