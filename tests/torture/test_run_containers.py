"""Two containers that share a cgroup hierarchy and have the same pids count as separate hosts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import hypervisor
from hypervisor.queue.lease import Worker
from hypervisor.queue.task import NewTask
from hypervisor.resources.cgroup import Group
from hypervisor.runs.processes.launcher import group_of
from tests.support.specs import run_spec
from tests.torture.fleet import DEADLINE, wait_for

CONTAINER = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
PID = 100  # of the worker, in every container
# The first process of a container: starts a worker with a given pid and does what it is told.
INIT = """
import os, signal, sys
import hypervisor
from hypervisor.resources.process_table import descendants, snapshot

store, batch, pid = sys.argv[1], sys.argv[2], int(sys.argv[3])

def start():
    with open("/proc/sys/kernel/ns_last_pid", "w") as file:
        file.write(str(pid - 1))
    words = ["-I", "-c", "from hypervisor.entry_points import serve; serve()", "work", batch]
    env = {**os.environ, "HYPERVISOR_STORE": store}
    return os.posix_spawn(sys.executable, [sys.executable, *words], env, setsid=True)

def look():
    return sorted(p.name for p in descendants(1, snapshot()) if p.lives)

def kill():
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)

def sweep():
    with hypervisor.open(store) as hv:
        return len(hv.sweep().reclaimed)

def leave():
    with hypervisor.open(store) as hv:
        hv.launcher.acquire_lock()
        hv.launcher.release(lambda: False)

for line in sys.stdin:
    print(eval(line), flush=True)
"""


class Container:
    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.store = str(folder / "store.db")
        with hypervisor.open(self.store) as hv:
            spec = run_spec(cwd=str(folder), command=("sh", "-c", "echo > ran; exec sleep 300"))
            batch = hv.submit(spec, [NewTask("item", data={"item": "item"})], "batch").batch.id
        self._ran = folder / "ran"
        self._init = subprocess.Popen(
            [*CONTAINER, sys.executable, "-c", INIT, self.store, batch, str(PID)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
        )

    def do(self, what: str):
        assert self._init.stdin and self._init.stdout
        self._init.stdin.write(f"{what}()\n")
        self._init.stdin.flush()
        answer = self._init.stdout.readline()
        assert answer, f"the container ended at {what}"
        return eval(answer)

    def start(self) -> None:
        assert self.do("start") == PID
        wait_for(self._ran.exists, "the command")
        wait_for(lambda: "sleep" in self.do("look"), "the command")

    def groups(self) -> list[str]:
        """Of its workers, dead or alive."""
        with hypervisor.open(self.store) as hv:
            database: Any = hv.store
            fields = ", ".join(Worker._fields)
            rows = database.read(lambda s: s.rows(f"SELECT {fields} FROM workers"))
        found = [Group.find(group_of(Worker(*row))) for row in rows]
        return [group.path for group in found if group is not None]

    def end(self) -> None:
        """All processes of a container end with its first."""
        if self._init.stdin:
            self._init.stdin.close()
        self._init.wait(DEADLINE)


@pytest.fixture
def containers(tmp_path):
    why_not = _why_no_containers()
    if why_not:
        pytest.skip(why_not)
    made = [Container(tmp_path / name) for name in ("one", "two")]
    yield made
    for each in made:
        each.end()


def _why_no_containers() -> str:
    if shutil.which("unshare") is None or not os.path.exists("/proc/sys/kernel/ns_last_pid"):
        return "needs unshare and a kernel that lets pids be chosen"
    tried = subprocess.run([*CONTAINER, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        return f"no pid namespace of our own: {tried.stderr.strip()}"
    made = Group.make(f"hv-test-{os.getpid()}")
    if made is None:
        return "no cgroup can be owned here"
    made.remove()
    return ""


def test_what_is_ended_in_one_container_leaves_the_other_alone(containers):
    one, two = containers
    one.start()
    two.start()
    beside = two.do("look")
    assert "sleep" in beside
    assert len({*one.groups(), *two.groups()}) == 2, "each worker has a group of its own"
    one.do("kill")
    assert one.do("sweep") == 1
    assert one.do("look") == [], "what the dead worker left is ended"
    assert two.do("look") == beside, "and nothing else"
    assert one.groups() == [] and len(two.groups()) == 1


def test_groups_of_a_container_that_ended_are_removed_by_the_next_supervisor(containers):
    one, two = containers
    one.start()
    two.start()
    one.end()
    two.do("leave")
    assert one.groups() == [] and len(two.groups()) == 1
    assert "sleep" in two.do("look")


def test_claims_of_another_container_are_left_alone_until_their_lease_ends(containers):
    """As with another host, it is unknown here whether its worker is alive."""
    one, _ = containers
    one.start()
    one.do("kill")
    with hypervisor.open(one.store) as hv:
        swept = hv.sweep()
        assert swept.reclaimed == () and swept.overdue == ()
    assert one.do("look") == ["sleep"]
    assert one.do("sweep") == 1
    assert one.do("look") == []
