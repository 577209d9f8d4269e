"""Starts supervisors and workers on this host, and cleans up after dead ones."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any

from hypervisor.core.places import (
    Places,
    is_supervised,
    make_private,
    remember_places,
    supervisor_lock,
    take_lock,
)
from hypervisor.queue.lease import Leftovers, Worker, parse_token
from hypervisor.resources.host import LocalHost
from hypervisor.resources.process_table import read_process
from hypervisor.runs.processes import journal, prestart
from hypervisor.runs.processes.daemon import spawn
from hypervisor.runs.processes.kept_environments import KeptEnvironments

if TYPE_CHECKING:
    import socket

    from hypervisor.runs.processes.fork_server import ForkServer

SIGNALS = {"drain": signal.SIGTERM, "stop": signal.SIGINT}
GRACE = 2.0
LOG = "supervisor.log"
WORKER_GROUP = "hypervisor-"  # prefix of cgroup names
# Requests of agents are large: their memory goes back to the system at once.
GATEWAY_MEMORY = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "131072",
}
STATUS, WAKE = "governor.json", "wake"
STAY = "--stay"  # for a supervisor that works for other hosts, too


class LocalLauncher:
    def __init__(
        self, where: str, places: Places, environment: Mapping[str, str] = os.environ
    ) -> None:
        """`where` is what a new process needs to open the same store. It may contain a secret, so
        it is passed in the environment, never as an argument. `environment` is that of new runs."""
        self.where = where
        self._environment = environment
        self.places = places
        self._started: set[int] = set()
        self._coming_up = 0
        self._adopts = False
        self._fork_server: ForkServer | None = None
        self._mcp = 0  # the process of the MCP server that was started last
        self._environments = KeptEnvironments(places.runtime, environment)
        self._handle = -1  # of the lock that makes us the supervisor
        self._gateway: socket.socket | None = None

    @property
    def log(self) -> str:
        """The path of the log that the background processes share."""
        return os.path.join(self.places.data, LOG)

    def supervisor(self) -> int | None:
        """The supervisor's process id, 0 while it is starting, None if there is none. Unless it is
        shutting down, it handles everything that is in the store by now."""
        if not os.path.isdir(self.places.runtime):
            return 0 if self._is_coming_up() else None
        with self.submitting():
            if not is_supervised(self.places):
                return 0 if self._is_coming_up() else None
            prestart.dismiss()
            return self._last_holder()

    def watched(self) -> str:
        """What changes when work may have arrived: the folder of an SQLite store; for a database
        elsewhere, a file that `wake` writes to."""
        if "://" not in self.where:
            return os.path.dirname(self.where)
        return self._wake_file()

    def wake(self) -> None:
        """Let the supervisor of this host look at the store at once."""
        if "://" in self.where:
            with suppress(OSError), open(self._wake_file(), "w", encoding="utf-8") as file:
                file.write("1")

    def _wake_file(self) -> str:
        path = os.path.join(make_private(self.places.runtime), WAKE)
        os.close(os.open(path, os.O_CREAT | os.O_CLOEXEC, 0o600))
        return path

    def submitting(self) -> AbstractContextManager[None]:
        return self._environments.submitting()

    def _is_coming_up(self) -> bool:
        """A process that held the lock and released it is shutting down, not starting."""
        if self._coming_up and self._last_holder() != self._coming_up:
            with suppress(ChildProcessError):
                if os.waitpid(self._coming_up, os.WNOHANG) == (0, 0):
                    return True
            self._coming_up = 0
        return False

    def _last_holder(self) -> int:
        with suppress(FileNotFoundError), open(self._lock(), encoding="ascii") as file:
            return int(file.read().strip() or 0)
        return 0

    def acquire_lock(self) -> int | None:
        """Become the supervisor of this store on this host. None if there is one."""
        handle = self._acquire(self._lock())
        self._handle = -1 if handle is None else handle
        if handle is not None and "://" not in self.where:
            remember_places(self.where, LocalHost().boot(), self.places)
        return handle

    def acquire_next_lock(self) -> int | None:
        """Become the successor that waits for the supervisor to exit. None if there is one."""
        return self._acquire(os.path.join(self.places.runtime, "next.lock"))

    def release(self, is_needed: Callable[[], bool], at_once: bool = False) -> bool:
        """Stop being the supervisor, and clean up. False if there is work, or some is being
        submitted. With `at_once`, even then; the environments are kept for the next one."""
        with self._environments.alone() as nobody_submits:
            needed = not nobody_submits or is_needed()
            if needed and not at_once:
                return False
            if not needed:
                self._environments.remove_all()
            self._clean_up()
            if self._handle >= 0:
                os.close(self._handle)
                self._handle = -1
        return True

    def acquire_lock_of(self, name: str) -> int | None:
        """Become the notifier, the merger or another process that a store has one of per host.
        None if there is one."""
        return self._acquire(self._lock_of(name))

    def _acquire(self, lock: str) -> int | None:
        make_private(self.places.runtime)
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        while not take_lock(handle, fcntl.LOCK_EX):
            if not take_lock(handle, fcntl.LOCK_SH):
                os.close(handle)
                return None
            fcntl.flock(handle, fcntl.LOCK_UN)  # another process only checks the lock
            time.sleep(0.001)
        try:
            os.ftruncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0)
        except OSError:
            os.close(handle)
            raise
        return handle

    def adopt(self, fork_server: ForkServer | None = None) -> None:
        """Become a subreaper: processes of dead workers become our children, and so do workers from
        the fork server, which is only used if this succeeds."""
        from hypervisor.runs.processes import tree

        self._adopts = tree.become_reaper()
        if fork_server is not None and self._adopts:
            self._fork_server = fork_server
            self._started.add(fork_server.pid)

    def start_supervisor(self, stay: bool = False) -> None:
        """With `stay`, it does not exit when there is nothing to do."""
        make_private(self.places.runtime)
        if stay:
            self._coming_up = self._start("supervise", STAY)
        else:
            started = prestart.take(self.where, self._log())
            self._coming_up = started or self._start("supervise", "--detached")

    def start_worker(self, batch: str, agent: str = "") -> int:
        """`agent` is the profile of its agent, "" for commands and functions."""
        pid = None
        words = [batch, agent] if agent else [batch]
        if agent:  # a server started by the agent would be stopped with its attempt
            self._start_mcp()
        if self._fork_server is not None:
            pid = self._fork_server.start(words, self._log())
        pid = pid or self._start("work", *words)
        self._started.add(pid)
        return pid

    def _start_mcp(self) -> None:
        """Start the MCP server of the store unless ours is running. It exits if there is another
        one."""
        process = read_process(self._mcp) if self._mcp else None
        if process is None or not process.lives or process.parent != os.getpid():
            self._mcp = self._start("mcp", "" if "://" in self.where else self.where)
            self._started.add(self._mcp)

    def start_notifier(self) -> None:
        self._start_alone("notifier", "notify")

    def start_merger(self) -> None:
        self._start_alone("merger", "merge")

    def start_cleaner(self) -> None:
        self._start_alone("cleaner", "clean")

    def start_telemetry(self) -> None:
        self._start_alone("telemetry", "telemetry")

    def start_gateway(self) -> None:
        """With a socket that this process keeps: while a gateway is replaced, calls wait there. One
        that a former supervisor has started has its own."""
        if self._is_alone("gateway"):
            from hypervisor.runs.processes import gateway_socket  # loads the socket module

            self._gateway = self._gateway or gateway_socket.listen(self.places.runtime)
            stdin = self._gateway.fileno()
            self._started.add(self._start("gateway", stdin=stdin, more=GATEWAY_MEMORY))

    def gateway_port(self) -> int | None:
        """The port of this host's gateway, None if there has been none."""
        from hypervisor.runs.processes import gateway_socket

        return gateway_socket.remembered_port(self.places.runtime)

    def _start_alone(self, name: str, role: str) -> None:
        """Start one unless one is running. Like a worker, it is not ended as a leftover."""
        if self._is_alone(name):
            self._started.add(self._start(role))

    def _is_alone(self, name: str) -> bool:
        """Whether no process of this name is running."""
        make_private(self.places.runtime)
        lock = os.open(self._lock_of(name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            return take_lock(lock, fcntl.LOCK_SH)
        finally:
            os.close(lock)

    def keep_environment(self, batch: str) -> bool:
        return self._environments.keep(batch)

    def environment(self, batch: str) -> dict[str, str] | None:
        """The environment that the run of a batch was started with."""
        return self._environments.read(batch)

    def forget_environment(self, batch: str) -> None:
        self._environments.forget(batch)

    def remains(self, worker: Worker) -> Leftovers | None:
        return journal.remains(self.places.runtime, worker)

    def end_leftovers(
        self, worker: Worker, remains: Leftovers | None, attempts: Collection[str]
    ) -> int | None:
        from hypervisor.runs.processes import tree

        try:
            return self._end_marked(worker, remains, attempts) + self._end_adopted()
        except tree.TreeSurvived:
            return None

    def _end_marked(
        self, worker: Worker, remains: Leftovers | None, attempts: Collection[str]
    ) -> int:
        """Without a journal, any of its claims may have been running, and its cgroup is found by
        name."""
        from hypervisor.resources.cgroup import Group
        from hypervisor.runs.processes import tree

        marks, leader, group = [mark_of(worker)], None, None
        if remains is None:
            marks += attempts
            cgroup = Group.find(group_of(worker))
            group = cgroup.path if cgroup else None
        else:
            group = remains.group
            if remains.running is not None:
                token = parse_token(remains.running)
                marks.append(f"{token.task}.{token.attempt}")
                leader = remains.leader
        return len(tree.end_leftovers(marks, leader, group, GRACE))

    def _end_adopted(self) -> int:
        """A child of ours that is not a worker was left behind by one. Workers themselves are
        collected by `reap`."""
        from hypervisor.runs.processes import tree

        if not self._adopts or tree.alone(self._started):
            return 0
        return len(tree.stop_descendants(GRACE, spare=self._started))

    def forget_leftovers(self, worker: Worker, remains: Leftovers) -> None:
        from hypervisor.resources.cgroup import Group

        if remains.group is not None:
            Group(remains.group).remove()
        journal.forget(self.places.runtime, worker)

    def signal(self, worker: Worker, request: str) -> None:
        """Send the signal through a pidfd, and only if it is still the same process."""
        with suppress(ProcessLookupError):
            handle = os.pidfd_open(worker.pid)
            try:
                if LocalHost().process_start(worker.pid) == worker.pid_start:
                    signal.pidfd_send_signal(handle, SIGNALS[request])
            finally:
                os.close(handle)

    def reap(self) -> list[tuple[int, int]]:
        from hypervisor.runs.processes import tree

        ended = [(child.pid, os.waitstatus_to_exitcode(child.status)) for child in tree.reap()]
        self._started -= {pid for pid, _ in ended}
        return ended

    def publish_status(self, status: dict[str, Any]) -> None:
        path = os.path.join(self.places.runtime, STATUS)
        with suppress(OSError):
            with open(path + ".new", "w", encoding="utf-8") as file:
                json.dump(status, file)
            os.rename(path + ".new", path)

    def read_status(self) -> dict[str, Any] | None:
        try:
            with open(os.path.join(self.places.runtime, STATUS), encoding="utf-8") as file:
                return dict(json.load(file))
        except (OSError, ValueError):
            return None

    def is_leaving(self) -> bool:
        return bool((self.read_status() or {}).get("asked"))

    def memory(self, workers: Collection[int]) -> dict[int, int]:
        if not workers:
            return {}
        from hypervisor.runs.processes import tree

        return {pid: sum(p.rss for p in tree.family(pid) if p.lives) for pid in workers}

    def _clean_up(self) -> None:
        """Before the supervisor exits: remove its status, and cgroups of workers that died before
        they could record them."""
        from hypervisor.resources.cgroup import remove_abandoned_groups

        remove_abandoned_groups(WORKER_GROUP)
        for name in (STATUS, f"{STATUS}.new"):
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(self.places.runtime, name))

    def start_dashboard(self, listening: int, *options: str) -> int:
        """In the background, on a socket that already listens."""
        return self._start("dashboard", *options, stdin=listening)

    def _start(self, *words: str, stdin: int = -1, more: Mapping[str, str] | None = None) -> int:
        env = {**self._environment, "HYPERVISOR_STORE": self.where, **(more or {})}
        return spawn(*words, env=env, log=self._log(), stdin=stdin)

    def _log(self) -> str:
        os.makedirs(self.places.data, mode=0o700, exist_ok=True)
        return self.log

    def _lock_of(self, name: str) -> str:
        return os.path.join(self.places.runtime, f"{name}.lock")

    def _lock(self) -> str:
        return supervisor_lock(self.places)


def mark_of(worker: Worker) -> str:
    """The mark in the environment of a worker's own helper processes."""
    return f"worker.{_unique_id(worker)}"


def group_of(worker: Worker) -> str:
    """The name of a worker's cgroup. A pid is not enough: containers may share a hierarchy."""
    return f"{WORKER_GROUP}{_unique_id(worker)}"


def _unique_id(worker: Worker) -> str:
    """An id of a worker's process that is unique across hosts."""
    from hashlib import blake2b

    text = f"{worker.boot} {worker.pid} {worker.pid_start}"
    return blake2b(text.encode(), digest_size=12).hexdigest()
