"""A project in which real batches run, and a way to find all its processes.

A process of the project is recognized by what no fork or new session changes: the runtime
folder in its environment, its working directory, its command line. What scrubs
all of that signs a roster (see `trees`). Everything ends with the project.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

import hypervisor
from hypervisor.queue.lease import Worker
from hypervisor.queue.task import Changes
from hypervisor.resources.cgroup import Group
from hypervisor.resources.host import LocalHost
from hypervisor.resources.process_table import Process, environment, read_process, snapshot
from hypervisor.runs.processes.launcher import group_of
from tests.support.mcp_servers import mcp_servers
from tests.support.ungoverned import UNGOVERNED

ROOT = Path(__file__).parents[2]
PROGRAM = (
    sys.executable,
    "-I",
    "-c",
    'import sys; sys.argv[0] = "hv"; from hypervisor.app import main; main()',
)
DEADLINE = 180.0

Rows = list[tuple[Any, ...]]


class Ended(NamedTuple):
    code: int
    out: str
    err: str


class Project:
    def __init__(self, folder: Path, config: str = UNGOVERNED) -> None:
        self.folder = folder / "project"
        self.runtime = folder / "run"
        self.runtime.mkdir(mode=0o700)
        self.folder.mkdir()
        self.env = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(folder),
            "LC_ALL": "C.UTF-8",
            "HV_ACTOR": "tester",
            "XDG_RUNTIME_DIR": str(self.runtime),
        }
        data = self.folder / ".hypervisor"
        hypervisor.open(data).close()
        self.store = str(data / "store.db")
        self.configure(config)
        self._clients: list[subprocess.Popen[bytes]] = []
        self._seen: set[tuple[int, int]] = set()

    # Running things

    def configure(self, config: str) -> None:
        (self.folder / ".hypervisor" / "config.toml").write_text(config)

    def start(self, *args: str, items: Iterable[object] = ()) -> subprocess.Popen[bytes]:
        """A client in the background; its items are piped in, its output is kept in files."""
        number = len(self._clients)
        listed = self.folder / f"items{number}"
        listed.write_text("".join(f"{item}\n" for item in items))
        with (
            open(listed, "rb") as stdin,
            open(self.folder / f"client{number}.out", "wb") as out,
            open(self.folder / f"client{number}.err", "wb") as err,
        ):
            client = subprocess.Popen(
                [*PROGRAM, *args],
                cwd=self.folder,
                env=self.env,
                stdin=stdin,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        self._clients.append(client)
        return client

    def ended(self, client: subprocess.Popen[bytes], seconds: float = DEADLINE) -> Ended:
        """How a client ended; it must end within the given time."""
        try:
            code = client.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"{self._told(client)} after {seconds} s:\n{self.story()}"
            ) from None
        return Ended(code, *self._told(client))

    def run(self, *args: str, items: Iterable[object] = (), seconds: float = DEADLINE) -> Ended:
        return self.ended(self.start("run", *args, items=items), seconds)

    def _told(self, client: subprocess.Popen[bytes]) -> tuple[str, str]:
        number = self._clients.index(client)
        out, err = (self.folder / f"client{number}.{kind}" for kind in ("out", "err"))
        return out.read_text(), err.read_text()

    def try_again_now(self) -> None:
        """Failed tasks wait some seconds for their retry; skip that wait."""
        wait_for(self._hurried, "the next try", story=self.story)

    def _hurried(self) -> bool:
        with self.open() as hv:
            waiting = [task.id for task in hv.list_tasks(states=("waiting",))]
            for task in waiting:
                hv.update(task, Changes(start_at=0))
        return bool(waiting) or set(self.states()) == {"done"}

    # Looking

    def open(self) -> hypervisor.Hypervisor:
        """The project through the Python API, seen from this process."""
        hv = hypervisor.open(self.store)
        hv.actor = self.env["HV_ACTOR"]
        return hv

    def query(self, *statements: str) -> list[Rows]:
        with closing(hypervisor.open(self.store)) as hv:
            database: Any = hv.store
            found: list[Rows] = database.read(lambda s: [s.rows(sql) for sql in statements])
            return found

    def events(self, *kinds: str) -> list[Any]:
        with closing(hypervisor.open(self.store)) as hv:
            return [event for event in hv.events(limit=100_000) if event.kind in kinds]

    def states(self) -> dict[str, int]:
        (rows,) = self.query("SELECT state, count(*) FROM tasks GROUP BY state")
        return dict(rows)

    def story(self) -> str:
        """What happened, for the message of a failed test."""
        log = self.folder / ".hypervisor" / "supervisor.log"
        notes = [(e.kind, e.task, e.data) for e in self.events(*STORY)][-20:]
        lines = [
            str(self.states()),
            *map(str, notes),
            log.read_text()[-3000:] if log.exists() else "",
            *(self._told(client)[1][-1000:] for client in self._clients),
        ]
        return "\n".join([*lines, *(f"{p.pid} {command_line(p.pid)}" for p in self.processes())])

    # Processes

    def processes(self) -> list[Process]:
        """All live processes of the project: clients, supervisor, workers, attempts."""
        marks = {
            f"XDG_RUNTIME_DIR={self.runtime}".encode(),
            f"HYPERVISOR_STORE={self.store}".encode(),
        }
        folder = str(self.folder)
        own = {os.getpid(), *_above(os.getpid())}
        found = [
            process
            for process in snapshot().values()
            if process.lives
            and process.pid not in own
            and (
                not marks.isdisjoint(environment(process.pid))
                or folder in _place(process.pid)
                or folder in command_line(process.pid)
            )
        ]
        return found

    def role(self, process: Process) -> str:
        """What a process of the project is: client, supervisor, fork server, worker or child."""
        line = command_line(process.pid)
        if line == command_line(process.parent):
            return "child"  # just spawned, it still looks like the one that did it
        words = line.split("\n")
        if words[:3] == [sys.executable, "-I", "-c"] and "from hypervisor." in words[3]:
            return {"supervise": "supervisor", "work": "worker", "fork-server": "fork_server"}.get(
                words[4] if len(words) > 4 else "", "client"
            )
        return "child"

    def supervisors(self) -> list[int]:
        return [p.pid for p in self.processes() if self.role(p) == "supervisor"]

    def workers(self) -> list[int]:
        return sorted(p.pid for p in self.processes() if self.role(p) == "worker")

    def wait_until_left(self, seconds: float = DEADLINE) -> None:
        """Nothing is running any more, and no files are left in the runtime folder."""
        wait_for(self._has_ended, "the end of all processes", seconds, self.story)
        left = [file.name for file in self.kept()]
        assert not left, f"left in the runtime folder: {left}"
        groups = self.groups()
        assert not groups, f"left of the workers' control groups: {groups}"

    def _has_ended(self) -> bool:
        """A shared MCP server without clients would stay for half a minute, so end it."""
        left = self.processes()
        servers = mcp_servers(self.folder) if left else []
        if {process.pid for process in left} == set(servers):
            for process in left:
                kill(process, signal.SIGTERM)
        return not left

    def kept(self) -> list[Path]:
        """The files in the runtime folder, except the locks and the latest figures, which stay."""
        with self.open() as hv:
            folder = Path(hv.launcher.places.runtime)
        stays = (
            "supervisor.lock",
            "submitting.lock",
            "next.lock",
            "gateway.lock",
            "gateway.port",
            "metrics",
        )
        return [file for file in folder.glob("*") if file.name not in stays]

    def groups(self) -> list[str]:
        """The control groups that workers of the project made and nobody removed."""
        fields = ", ".join(Worker._fields)
        (workers,) = self.query(f"SELECT {fields} FROM workers WHERE batch IS NOT NULL")
        found = [Group.find(group_of(Worker(*row))) for row in workers]
        return sorted(group.path for group in found if group is not None)

    def close(self) -> None:
        """End all processes that are left, whatever their parent."""
        until = time.monotonic() + DEADLINE
        while (left := self.processes()) and time.monotonic() < until:
            for process in left:
                kill(process)
            time.sleep(0.01)
        for client in self._clients:
            client.kill()
            client.wait(DEADLINE)
        for group in self.groups():
            with suppress(OSError):
                os.rmdir(group)


STORY = (
    "governor",
    "overseer",
    "trouble",
    "leftovers",
    "pause",
    "resume",
    "crash",
    "poison",
    "fail",
    "stop",
)


def wait_for(
    condition: Callable[[], object],
    what: str,
    seconds: float = DEADLINE,
    story: Callable[[], str] = lambda: "",
) -> None:
    until = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        if condition():
            return
        assert began < until, f"waited {seconds} s in vain for {what}\n{story()}"
        time.sleep(max(0.01, 2 * (time.monotonic() - began)))  # polling must not use all the CPU


def kill(process: Process, number: int = signal.SIGKILL) -> bool:
    """Signal a process if it is still the same one."""
    with suppress(ProcessLookupError):
        handle = os.pidfd_open(process.pid)
        try:
            now = read_process(process.pid)
            if now is not None and now.start == process.start and now.lives:
                signal.pidfd_send_signal(handle, number)
                return True
        finally:
            os.close(handle)
    return False


def lives(pid: int, start: int) -> bool:
    return LocalHost().process_start(pid) == start


def command_line(pid: int) -> str:
    """The words of a command, one a line."""
    try:
        return (
            Path(f"/proc/{pid}/cmdline")
            .read_bytes()
            .decode(errors="replace")
            .rstrip("\0")
            .replace("\0", "\n")
        )
    except OSError:
        return ""


def _place(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return ""


def _above(pid: int) -> list[int]:
    found: list[int] = []
    while (process := read_process(pid)) and process.parent:
        pid = process.parent
        found.append(pid)
    return found
