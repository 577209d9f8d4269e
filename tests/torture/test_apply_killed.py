"""A plan is carried out, and undone, by processes that are killed again and again.

The children are forked and killed by themselves, before or after the n-th call that leaves a
trace outside the process (a rename, a sync, a commit): no moment is left to luck. Then the
real program is killed by the clock. Whatever happens, every action is done exactly once.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hypervisor
from hypervisor.app import connect
from hypervisor.batches.sql import actions
from hypervisor.cli.main import run
from hypervisor.core import atomic_replace
from hypervisor.core.renameat2 import renameat2
from hypervisor.queue.sql import event_log, queries
from hypervisor.store.sqlite import SqliteDatabase
from tests.support.proposing import propose, result, tree
from tests.torture.fleet import PROGRAM

FILES = 60
KILLS = 200
BATCH = "tidy up"
OPEN, DONE = (
    "---\nstatus: open # still\n---\nItem {}\n",
    "---\nstatus: done # still\n---\nItem {}\n",
)
CALLS = ("rename", "link", "unlink", "fsync", "mkdir", "rmdir", "ftruncate", "fchmod")


class Folder:
    """Sixty files, a batch that proposes actions of every kind, and the expected outcome."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "in").mkdir(parents=True)
        for n in range(FILES):
            file = path / "in" / f"{n:02}.md"
            file.write_text(OPEN.format(n))
            file.chmod((0o600, 0o644, 0o755, 0o4711)[n % 4])
            os.utime(file, ns=(n, 1_700_000_000_000_000_000 + n))
        self.done = path.parent / f"{path.name}.done"
        with self.open() as hv:
            propose(hv, BATCH, path, [result(*each) for each in _proposals()])
        (path / ".hypervisor" / "config.toml").write_text('[store]\ndurability = "relaxed"\n')
        self.before = tree(path)
        self.after = self._expected()

    def open(self) -> hypervisor.Hypervisor:
        hv = hypervisor.open(self.path / ".hypervisor", relaxed=True)
        hv.actor = "tester"
        return hv

    def _expected(self) -> dict[str, tuple[int, bytes | None]]:
        found = {name: (mode, content) for name, (mode, content, _) in self.before.items()}
        umask = os.umask(0)
        os.umask(umask)
        for folder in ("archive", "archive/2026", "archive/2027", "new", "new/deep"):
            found[folder] = (0o777 & ~umask, None)
        for n in range(25):
            old = f"in/{n:02}.md"
            mode, content = found.pop(old)
            if n >= 10:
                content = DONE.format(n).encode()
            found[f"archive/{2026 + n % 2}/{n:02}.md" if n < 10 or n >= 20 else old] = mode, content
        for n in range(25, 35):
            found[f"in/{n:02}.md"] = found[f"in/{n:02}.md"][0], f"written {n}".encode()
        for n in range(35, 45):
            del found[f"in/{n:02}.md"]
        for n in range(10):
            found[f"new/deep/{n}.txt"] = 0o666 & ~umask, f"new {n}".encode()
        return found

    def hv(self, *args: str, kill_at: int = 0) -> int:
        """Run a command in a child, which dies at its n-th step (0: never)."""
        child = os.fork()
        if child == 0:
            _be_killed(self, args, kill_at)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def operations(self) -> Counter[str]:
        """All renames, by all processes."""
        return Counter(self.done.read_text().splitlines()) if self.done.exists() else Counter()


def _proposals() -> list[list[dict[str, Any]]]:
    def name(n: int) -> str:
        return f"in/{n:02}.md"

    def move(n: int) -> dict[str, Any]:
        return {"do": "move", "path": name(n), "to": f"archive/{2026 + n % 2}/{n:02}.md"}

    def edit(n: int) -> dict[str, Any]:
        return {"do": "edit", "path": name(n), "set": {"status": "done"}}

    return [
        *[[move(n)] for n in range(10)],
        *[[edit(n)] for n in range(10, 20)],
        *[[edit(n), move(n)] for n in range(20, 25)],
        *[[{"do": "write", "path": name(n), "text": f"written {n}"}] for n in range(25, 35)],
        *[[{"do": "delete", "path": name(n)}] for n in range(35, 45)],
        [{"do": "create", "path": f"new/deep/{n}.txt", "text": f"new {n}"} for n in range(10)],
        *[[{"do": "task", "title": f"look at {n}"}] for n in range(5)],
    ]


ACTIONS = sum(map(len, _proposals()))


def _be_killed(folder: Folder, args: tuple[str, ...], kill_at: int) -> None:
    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 1
        if steps == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def killing(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*given: Any, **named: Any) -> Any:
            step()
            try:
                return call(*given, **named)
            finally:
                step()

        return wrapped

    code = 99
    try:
        trace = os.open(folder.done, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        _write_down(trace)
        for name in CALLS:
            setattr(os, name, killing(getattr(os, name)))
        for owner, name in (
            (atomic_replace, "renameat2"),
            (event_log, "write"),
            (SqliteDatabase, "write"),
        ):
            setattr(owner, name, killing(getattr(owner, name)))
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
        os.chdir(folder.path)
        os.environ.update(HV_ACTOR="tester")
        os.environ.pop("HYPERVISOR_STORE", None)
        code = run(list(args), connect)
    finally:
        os._exit(code)


def _write_down(trace: int) -> None:
    """Record every successful rename before we can be killed."""
    rename = renameat2

    def noted(old: int, name: str, new: int, target: str, flags: int) -> bool:
        done = rename(old, name, new, target, flags)
        os.write(trace, f"{flags} {name} {target}\n".encode())
        return done

    vars(atomic_replace)["renameat2"] = noted


def check_midway(folder: Folder, verb: str) -> None:
    """An action has its receipt if and only if it is in the state that the receipt tells."""
    with folder.open() as hv:
        rows = hv.store.read(actions.every, hv.store.read(queries.batch, BATCH).id)
        said = Counter(_numbers(hv, verb))
        assert set(said.values()) <= {1}, said
        state = {"applied": ("applied", "undoing", "undone"), "undone": ("undone",)}[verb]
        assert set(said) == {row.number for row in rows if row.state in state}


def check_applied(folder: Folder) -> None:
    found = {name: (mode, content) for name, (mode, content, _) in tree(folder.path).items()}
    assert found == folder.after
    with folder.open() as hv:
        rows = hv.store.read(actions.every, hv.store.read(queries.batch, BATCH).id)
        assert [row.number for row in rows] == list(range(1, ACTIONS + 1))
        assert {row.state for row in rows} == {"applied"}
        assert sorted(_numbers(hv, "applied")) == list(range(1, ACTIONS + 1))
        texts = [each.text for each in hv.receipts(BATCH)]
        assert sum(text.startswith("plan approved: ") for text in texts) == 1
        assert [each.problem for each in hv.verify(BATCH)] == [None]
        assert len([t for t in hv.list_tasks(limit=1000) if t.title.startswith("look at")]) == 5


def check_undone(folder: Folder) -> None:
    assert tree(folder.path) == folder.before
    with folder.open() as hv:
        rows = hv.store.read(actions.every, hv.store.read(queries.batch, BATCH).id)
        assert {row.state for row in rows} == {"undone"}
        assert sorted(_numbers(hv, "undone")) == list(range(1, ACTIONS + 1))
        assert [each.problem for each in hv.verify(BATCH)] == [None]
        made = [t for t in hv.list_tasks(limit=1000) if t.title.startswith("look at")]
        assert [task.state for task in made] == ["cancelled"] * 5


def _numbers(hv: hypervisor.Hypervisor, verb: str) -> list[int]:
    return [
        int(each.text.split("#")[1].split(":")[0])
        for each in hv.receipts(BATCH)
        if each.text.startswith(f"{verb} #")
    ]


def _until_done(folder: Folder, dice: random.Random, verb: str, *args: str) -> int:
    """Kill the command and restart it until it completes. Returns the number of kills."""
    kills = 0
    while (code := folder.hv(*args, kill_at=dice.randint(1, dice.choice((8, 40, 160))))) != 0:
        assert code == -signal.SIGKILL, code
        kills += 1
        check_midway(folder, verb)
        assert kills < 10 * KILLS, "no progress"
    return kills


def test_killed_at_random_points_and_undone_at_random_points(tmp_path, long):
    dice = random.Random(2026)
    applying = undoing = rounds = 0
    while applying < KILLS * (5 if long else 1):
        folder = Folder(tmp_path / f"round{rounds}")
        applying += _until_done(folder, dice, "applied", "apply", BATCH, "--yes")
        check_applied(folder)
        once = folder.operations()
        assert set(once.values()) == {1}, [each for each in once.items() if each[1] > 1]
        assert len(once) == 15 + 25 + 10 + 10  # moves, new contents, removals, new files
        assert folder.hv("apply", BATCH, "--yes") == 0, "nothing is left to do"
        check_applied(folder)
        undoing += _until_done(folder, dice, "undone", "undo", BATCH, "--yes")
        check_undone(folder)
        rounds += 1
    print(f"{applying} kills while applying, {undoing} while undoing, in {rounds} rounds")
    assert undoing > applying / 4


@pytest.mark.long
def test_every_third_point(tmp_path):
    """The points of a whole application in turn, resumed at once; runs differ in where they
    start."""
    point, code = -random.randrange(3), -signal.SIGKILL
    while code == -signal.SIGKILL:
        point += 3
        folder = Folder(tmp_path / f"point{point}")
        code = folder.hv("apply", BATCH, "--yes", kill_at=point)
        assert folder.hv("apply", BATCH, "--yes") == 0
        check_applied(folder)
        subprocess.run(["rm", "-rf", str(folder.path)], check=True)
    assert point > KILLS


def test_program_killed_by_the_clock(tmp_path):
    dice = random.Random(4)
    folder = Folder(tmp_path / "clock")
    env = {"PATH": os.defpath, "HOME": str(tmp_path), "HV_ACTOR": "tester"}

    def hv(*args: str, seconds: float | None) -> int:
        started = subprocess.Popen(
            [*PROGRAM, *args], cwd=folder.path, env=env, stdout=subprocess.DEVNULL
        )
        if seconds is not None:
            time.sleep(seconds)
            started.kill()
        return started.wait(180)

    whole = 0.5
    for verb, args in (
        ("applied", ("apply", BATCH, "--yes")),
        ("undone", ("undo", BATCH, "--yes")),
    ):
        for _ in range(8):
            code = hv(*args, seconds=dice.uniform(0.1, whole))
            assert code in (0, -signal.SIGKILL)
            if folder.path.joinpath(".hypervisor/batches").exists():
                check_midway(folder, verb)
        assert hv(*args, seconds=None) == 0
        if verb == "applied":
            check_applied(folder)
    check_undone(folder)
