"""Whole runs whose processes are killed at random moments, for tests: python -m tests.git.killing
STORE removes workspaces of ended tasks, so that this can be killed, too.

Every attempt notes in a journal which files and commits exist, after it has made them. What is in a
journal must never be lost.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import hypervisor
from hypervisor.git import tidy
from hypervisor.git.hub import Hub
from hypervisor.queue.task import NewTask, Task
from hypervisor.runs import sql as runs_sql
from hypervisor.runs.spec import CommandSpec, GitSpec, RunSpec
from hypervisor.selftest.repositories import Repo, bare_clone, write_script
from tests.git.whole_runs import ENDED

ROOT = Path(__file__).parents[2]
WHO = ("worker", "supervisor", "merger", "agent", "remover", "all")
# Kinds of git commands, by what is going on when one of them runs.
MOMENTS = {
    "create": ("read-tree", "checkout-index", "checkout", "clone"),
    "snapshot": ("write-tree", "update-index", "add", "ls-files"),
    "finish": ("commit-tree", "hash-object", "merge-base"),
    "merge": ("merge-tree", "update-ref"),
    "push": ("push", "ls-remote", "send-pack", "receive-pack"),
    "remove": ("fsck", "rev-list", "cat-file"),
}
# A quarter of the tasks meet in a file, two in each; some work longer than snapshots are apart.
AGENT = """#!/bin/sh
set -e
me="$1-$(date +%s%N)"
echo "$me" > "dirty-$me.txt"
echo "dirty-$me.txt" >> '{journal}/files'
case $1 in
*long) sleep {long}
    [ -e "dirty-$me.txt" ] && echo "$me" >> '{journal}/long'
    rm "dirty-$me.txt";;
*) sleep 0.3;;
esac
n=${{1%%-*}}
case $((n % 4)) in 0) shared=shared-$((n / 8)).txt;; *) shared=own-$n.txt;; esac
echo "by $n" >> "$shared"
git add --all
git commit --quiet --message "Early work on $n"
git rev-parse HEAD >> '{journal}/commits'
echo "$n" > "new-$n.txt"
"""
VERIFY = """#!/bin/sh
if grep -q '^<<<<<<<' shared-*.txt 2>/dev/null; then exit 1; fi
git write-tree >> '{log}'
"""


class KilledRuns:
    """A repository with a remote, batches whose work is pushed there, and who is killed."""

    def __init__(self, folder: Path, hv: hypervisor.Hypervisor, seed: int) -> None:
        self.folder, self.hv, self.random = folder, hv, random.Random(seed)
        self.repo = Repo(folder / "project")
        self.base = self.repo.commit({"a.txt": "a\n"}, "first")
        self.repo.git.run("branch", "mine")
        self.remote = bare_clone(self.repo, folder / "remote.git")
        self.remote.run("config", "core.logAllRefUpdates", "always")
        self.repo.git.run("remote", "add", "origin", f"file://{self.remote.folder}")
        self.journal = folder / "journal"
        self.journal.mkdir()
        for name in ("files", "commits", "long"):
            (self.journal / name).touch()
        text = AGENT.format(journal=self.journal, long=36)
        self.agent = write_script(folder / "agent", text)
        self.verify = write_script(folder / "verify", VERIFY.format(log=folder / "passed"))
        self.count = 0
        self.killed: Counter[str] = Counter()
        self.moments: Counter[str] = Counter()

    def submit(self, count: int, long: int = 0) -> None:
        """One more batch; some of its tasks take longer than snapshots are apart."""
        names = [f"{self.count + n}{'-long' if n < long else ''}" for n in range(count)]
        self.count += count
        spec = RunSpec(
            str(self.repo.folder),
            CommandSpec((self.agent, "{}")),
            workers=4,
            retry_delay=50,
            workspace="clone",
            git=GitSpec(merge="push", target="main", verify=(self.verify,)),
        )
        tasks = [NewTask(n, type="run", key=n, retries=20, data={"item": n}) for n in names]
        self.hv.submit(spec, tasks, f"edits{self.count}")
        self.hv.supervise()

    def tasks(self) -> list[Task]:
        return list(self.hv.list_tasks(limit=10_000))

    def all_ended(self) -> bool:
        return all(task.state in ENDED for task in self.tasks())

    # Killing

    def kill(self) -> None:
        """A random process, at any moment or while git does something certain for them."""
        alive = self._at_work()
        who = self.random.choice([who for who in WHO if alive.get(who) or who == "remover"])
        remover = self._start_remover() if who == "remover" else None
        victims = [remover.pid] if remover else alive[who]
        if who not in ("all", "remover"):
            victims = [self.random.choice(victims)]
        family = _wait_for(victims, self.random.choice(("", *MOMENTS)), self.random.random() * 0.6)
        moments = _moments(family)
        doomed = family if who in ("all", "agent") or self.random.random() < 0.5 else victims
        if sum(map(_killed, doomed)):
            self.killed[who] += 1
            self.moments.update(moments)
        if remover:
            remover.communicate()

    def _at_work(self, seconds: float = 10.0) -> dict[str, list[int]]:
        """The live processes, once some work or merge again after the last kill."""
        deadline = time.monotonic() + seconds
        while True:
            self.hv.supervise()
            alive = self._alive()
            busy = alive["worker"] or alive["merger"]
            if busy or self.all_ended() or time.monotonic() > deadline:
                return alive
            time.sleep(0.01)

    def _alive(self) -> dict[str, list[int]]:
        """The processes that can be killed, by what they are."""
        probe = self.hv.probe
        merger = 0
        with suppress(OSError, ValueError):
            merger = int(Path(self.hv.places.runtime, "merger.lock").read_text())
        at_work = self.hv.store.read(runs_sql.at_work, probe.boot())
        workers = [worker.worker.pid for worker in at_work]
        found = {"supervisor": [self.hv.launcher.supervisor() or 0], "merger": [merger]}
        found |= {"worker": workers, "agent": sorted(set(_family(workers)) - set(workers))}
        found["all"] = [pid for pids in found.values() for pid in pids]
        return {
            who: [pid for pid in pids if pid > 0 and probe.process_start(pid) is not None]
            for who, pids in found.items()
        }

    def _start_remover(self) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "tests.git.killing", str(self.folder / "store" / "store.db")]
        env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}
        process = subprocess.Popen(words, cwd=ROOT, env=env, stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        return process

    # At the end

    def end(self, seconds: float) -> None:
        """Until every task has ended, and all workspaces are removed."""
        deadline = time.monotonic() + seconds
        while not self.all_ended():
            left = [(t.title, t.state, t.reason) for t in self.tasks() if t.state not in ENDED]
            assert time.monotonic() < deadline, left
            self.hv.supervise()
            time.sleep(0.2)

    def check(self) -> None:
        """Nothing is lost, merged twice or in the target without verification."""
        tip = self.remote.text("rev-parse", "main")
        names = set(self.remote.names("ls-tree", "-z", "--name-only", tip))
        for task in self.tasks():
            poisoned = task.state == "failed" and "poisoned" in (task.reason or "")
            assert task.state in ("done", "review") or poisoned, task
            assert task.state != "review" or task.reason, task
            number = int(task.title.split("-")[0])
            shared = f"shared-{number // 8}.txt" if number % 4 == 0 else f"own-{number}.txt"
            lines = self.remote.run("show", f"{tip}:{shared}", ok=(0, 128)).stdout.decode()
            merged = task.state == "done"
            assert lines.splitlines().count(f"by {number}") == merged, (task, lines)
            assert (f"new-{number}.txt" in names) == merged, task
        moves = self.remote.text("reflog", "show", "--format=%T", "main").split()
        first = self.remote.text("rev-parse", f"{self.base}^{{tree}}")
        passed = {first, *(self.folder / "passed").read_text().split()}
        assert set(moves) <= passed
        mine = [self.repo.tip("main"), self.repo.tip("mine"), self.remote.commit_of("mine")]
        assert mine == [self.base] * 3
        self.check_saved()

    def _where(self, commit: str) -> str:
        """Where the object of a commit is, for the message of a failed test."""
        folder = Path(self.hv.places.data, "git")
        places = [str(path) for path in folder.glob(f"**/{commit[:2]}/{commit[2:]}")]
        return f"commit {commit} is reachable from no ref; its object is in {places or 'no file'}"

    def finish_long(self, count: int) -> None:
        """Tasks that work longer than snapshots are apart; then all processes are killed."""
        self.submit(count, long=count)
        deadline = time.monotonic() + 240
        while len((self.journal / "long").read_text().split()) < count:
            assert time.monotonic() < deadline, "the long tasks do not get on"
            self.hv.supervise()
            time.sleep(0.2)
        for pid in _family(self._alive()["all"]):
            _killed(pid)

    def check_saved(self) -> None:
        """All that a journal names is reachable from a ref of the hub."""
        (path,) = Path(self.hv.places.data, "git").glob("*.git")
        git = Hub(str(path)).git
        reachable = set(git.text("rev-list", "--all").split())
        commits = set((self.journal / "commits").read_text().split())
        lost = commits - reachable
        assert not lost, "\n".join(self._where(commit) for commit in sorted(lost))
        words = ("log", "--all", "-m", "--diff-filter=A", "--name-only", "--format=", "-z")
        saved = set(git.names(*words))
        files = set((self.journal / "files").read_text().split())
        long = {f"dirty-{name}.txt" for name in (self.journal / "long").read_text().split()}
        short = {name for name in files if "-long-" not in name}
        assert short - saved == set(), "lost files"
        assert long - saved == set(), "lost files that were there longer than a snapshot takes"
        assert git.text("fsck", "--connectivity-only", "--no-dangling") == ""
        self.saved = {"commits": len(commits), "files": len(short), "long": len(long)}


def _wait_for(pids: list[int], moment: str, seconds: float) -> list[int]:
    """Until git does that for one of them, but not longer than that; they and their children."""
    deadline = time.monotonic() + seconds
    while True:
        family = _family(pids)
        if time.monotonic() >= deadline or (moment and moment in _moments(family)):
            return family
        time.sleep(0.001)


def _family(pids: list[int]) -> list[int]:
    """With all children, as the kernel lists them: quickly, because git is quick."""
    found = list(pids)
    for pid in found:
        with suppress(OSError):
            for thread in os.listdir(f"/proc/{pid}/task"):
                children = Path(f"/proc/{pid}/task/{thread}/children").read_text()
                found += [child for child in map(int, children.split()) if child not in found]
    return found


def _killed(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _moments(pids: list[int]) -> set[str]:
    """What git is doing in these processes."""
    words = {word for pid in pids for word in _words(pid)}
    return {moment for moment, commands in MOMENTS.items() if words & set(commands)}


def _words(pid: int) -> list[str]:
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")
        if os.path.basename(words[0]) == "git":
            return words
    return []


def remove_ended(hv: Any) -> None:
    tidy.remove_ended(hv, hv.now() + tidy.KEPT_MS + 1)


def main(store: str) -> None:
    with hypervisor.open(store, relaxed=True) as hv:
        print("ready", flush=True)
        remove_ended(hv)


if __name__ == "__main__":
    main(sys.argv[1])
