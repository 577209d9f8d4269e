"""However an attempt is stopped, its whole tree ends within seconds, and no other process does."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from hypervisor.queue.sql import queries
from hypervisor.resources.process_table import snapshot
from tests.runs.processes.forest import ATTEMPT, BARE, GROWN, MIX
from tests.support.ungoverned import UNGOVERNED
from tests.torture.fleet import kill, lives, wait_for

LIMIT = 100.0  # the machine may be slow; how long it took is printed
SMALL_MIX = ["plain", "session", "daemon", "stubborn", "scrubbed", "lost"]
# A second attempt ends at once, and reports which processes of the first are still alive.
GROW = f"""
import os, sys
os.chdir(sys.argv[1])
sys.argv[1:] = open("kinds").read().split()
def is_here(pid):
    try:
        return pid != str(os.getpid()) and os.readlink(f"/proc/{{pid}}/cwd") == os.getcwd()
    except OSError:
        return False
if os.path.exists("roster"):
    met = [pid for pid in os.listdir("/proc") if pid.isdecimal() and is_here(pid)]
    with open("met", "w") as file:
        file.write(" ".join(met))
    sys.exit(0)
{ATTEMPT}
"""
COMMAND = (*BARE, "grow.py", "{}")


@pytest.fixture
def elsewhere(tmp_path):
    """Unrelated processes with the same command line, which must not be touched."""
    made = Ground(tmp_path / "elsewhere")
    made.plant("victim", SMALL_MIX)
    command = [word.format("victim") for word in COMMAND]
    leader = subprocess.Popen(command, cwd=made.folder, start_new_session=True)
    made.wait_until_grown("victim", len(SMALL_MIX) + 1)
    yield made
    wait_for(lambda: not made.fell("victim"), "the end of the bystanders")
    leader.wait()


@pytest.mark.parametrize("how", ["kill", "cancel", "timeout", "worker", "worker and supervisor"])
def test_no_survivor_and_no_bystander_hit(project, elsewhere, how, long):
    project.configure(UNGOVERNED + '[run]\ngrace = "2s"\n')  # the machine may be slow
    ground = Ground(project.folder)
    bystanders = elsewhere.identities("victim")
    assert len(bystanders) == len(SMALL_MIX) + 1
    took = []
    for number in range(10 if long else 1):
        run = Run(project, ground, f"{how.split()[0]}{number}", how)
        took.append(run.stop())
        run.check_outcome()
        run.check_neighbour()
        assert elsewhere.identities("victim") == bystanders
    print(f"{how}: {len(took)} trees of {GROWN} and more, gone after {max(took):.2f} s at most")


class Run:
    """A batch with a tree that is stopped and, beside it, one that is left alone."""

    def __init__(self, project, ground, name, how):
        self.project, self.ground, self.name, self.how = project, ground, name, how
        victim, neighbour = f"{name}-victim", f"{name}-neighbor"
        ground.plant(victim, MIX)
        ground.plant(neighbour, SMALL_MIX)
        self.victim = victim
        self.items = [victim] if how == "timeout" else [victim, neighbour]
        self._submit()
        ground.wait_until_grown(victim, GROWN)
        if len(self.items) > 1:
            ground.wait_until_grown(neighbour, len(SMALL_MIX) + 1)
        self.neighbours = ground.identities(neighbour)
        self.tree = ground.identities(victim)
        assert len(self.tree) >= GROWN

    def _submit(self):
        limit = ["--timeout", "12s"] if self.how == "timeout" else []
        asked = ("--detach", "--workers", "2", "--claim", "1", "--name", self.name, *limit)
        started = self.project.run(*asked, "--", *COMMAND, items=self.items)
        assert started.code == 0, started

    def stop(self):
        """Stop the victim in this way. Returns how long its tree lived after that."""
        with self.project.open() as hv:
            (task,) = hv.list_tasks(batch=self.name, text=self.victim)
            (attempt,) = (each for each in hv.attempts(self.name) if each.task == task.id)
            began = time.time()
            if self.how == "kill":
                hv.kill(task.id, reason="enough")
            elif self.how == "cancel":
                hv.cancel(task.id, reason="enough")
            elif self.how == "timeout":
                wait_for(lambda: self._stopped_at(task.id), "the overseer")
                began = self._stopped_at(task.id)
            else:
                self._strike(attempt.pid)
            wait_for(
                lambda: not self.ground.identities(self.victim) & self.tree,
                "the end of the tree",
                story=self.project.story,
            )
            took = time.time() - began
            self.task = task.id
        assert took < LIMIT, f"it took {took:.1f} s"
        return took

    def _strike(self, worker):
        all = snapshot()
        if self.how == "worker and supervisor":
            (supervisor,) = self.project.supervisors()
            assert kill(all[supervisor])
        assert kill(all[worker])
        if self.how == "worker and supervisor":
            self._submit()

    def _stopped_at(self, task):
        """When the overseer decided to stop it: its grace period starts then."""
        events = (e for e in self.project.events("overseer") if e.task == task)
        return next((e.at / 1000 for e in events if e.data["act"] == "stop"), None)

    def check_neighbour(self):
        here = self.ground.identities(f"{self.name}-neighbor")
        assert here == self.neighbours, "another attempt was hit"
        with self.project.open() as hv:
            hv.stop_batch(self.name)
            hv.pause(self.name)
        self.ground.fell(f"{self.name}-neighbor")

    def check_outcome(self):
        """The task ends as requested; the tree was gone before it ran again."""
        with self.project.open() as hv:
            again = self.how in ("worker", "worker and supervisor")
            state = {"kill": "failed", "cancel": "cancelled", "timeout": "failed"}
            wanted = "done" if again else state[self.how]
            wait_for(
                lambda: hv.store.read(queries.task, self.task).state == wanted,
                wanted,
                story=self.project.story,
            )
            detail = hv.store.read(queries.detail, self.task)
        outcomes = [attempt.outcome for attempt in detail.attempts]
        reasons = {"kill": "killed by tester: enough", "cancel": "enough"}
        if again:
            assert outcomes == ["crashed", "done"]
            assert (self.ground.folder / self.victim / "met").read_text() == ""
        elif self.how == "timeout":
            assert detail.task.reason and detail.task.reason.endswith("limit 12 s")
        else:
            assert detail.task.reason == reasons[self.how]


class Ground:
    """A folder for process trees; each has its own folder, by which it is recognized."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.folder.mkdir(exist_ok=True)
        (self.folder / "grow.py").write_text(GROW)

    def plant(self, name: str, kinds: list[str]) -> None:
        (self.folder / name).mkdir()
        (self.folder / name / "kinds").write_text(" ".join(kinds))

    def wait_until_grown(self, name: str, signatures: int) -> None:
        roster = self.folder / name / "roster"
        grown = lambda: roster.exists() and roster.read_text().count("\n") >= signatures  # noqa: E731
        wait_for(grown, f"{signatures} processes in {name}")

    def identities(self, name: str) -> set[tuple[int, int]]:
        """Every process that works in that folder, whatever its parent is now."""
        place = str(self.folder / name)
        return {(p.pid, p.start) for p in snapshot().values() if p.lives and _cwd(p.pid) == place}

    def fell(self, name: str) -> set[tuple[int, int]]:
        """End all processes there; returns them."""
        found = self.identities(name)
        all = snapshot()
        for pid, start in found:
            if lives(pid, start) and pid in all:
                kill(all[pid])
        return found


def _cwd(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return ""
