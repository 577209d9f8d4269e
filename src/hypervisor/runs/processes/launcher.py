"""Starts supervisors and workers on this host, and finds what dead ones left."""

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
from hypervisor.queue.lease import Worker, parse_token
from hypervisor.resources.cgroup import Group, remove_abandoned_groups
from hypervisor.resources.host import LocalHost
from hypervisor.runs.processes import journal, prestart, tree
from hypervisor.runs.processes.daemon import spawn
from hypervisor.runs.processes.kept_environments import KeptEnvironments
from hypervisor.runs.spec import Leftovers

if TYPE_CHECKING:
    from hypervisor.runs.processes.fork_server import ForkServer

SIGNALS = {"drain": signal.SIGTERM, "stop": signal.SIGINT}
GRACE = 2.0
LOG = "supervisor.log"
WORKER_GROUP = "hypervisor-"  # and what tells the worker from all others
STATUS = "governor.json"


class LocalLauncher:
    def __init__(
        self, where: str, places: Places, environment: Mapping[str, str] = os.environ
    ) -> None:
        """`where` is what a new process needs to open the same store; it may hold a secret,
        so it travels in the environment, never among the arguments. `environment` is what runs
        are started with."""
        self.where = where
        self._environment = environment
        self.places = places
        self._started: set[int] = set()
        self._coming_up = 0
        self._adopts = False
        self._fork_server: ForkServer | None = None
        self._environments = KeptEnvironments(places.runtime, environment)
        self._handle = -1  # of the lock that makes us the supervisor

    def supervisor(self) -> int | None:
        """Its process id, 0 while it comes up. Unless it was asked to end, one that is there sees
        to all that is in the store by now: had it been about to leave, we had waited for that."""
        if not os.path.isdir(self.places.runtime):
            return 0 if self._is_coming_up() else None
        with self.submitting():
            if not is_supervised(self.places):
                return 0 if self._is_coming_up() else None
            prestart.dismiss()
            return self._last_holder()

    def submitting(self) -> AbstractContextManager[None]:
        return self._environments.submitting()

    def _is_coming_up(self) -> bool:
        """One that has held the lock and does no more is on its way out, not up."""
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
        """Become the one supervisor of this store here. None if there is one."""
        handle = self._acquire(self._lock())
        self._handle = -1 if handle is None else handle
        if handle is not None and "://" not in self.where:
            remember_places(self.where, LocalHost().boot(), self.places)
        return handle

    def acquire_next_lock(self) -> int | None:
        """Become the one that waits for the supervisor to leave. None if there is one."""
        return self._acquire(os.path.join(self.places.runtime, "next.lock"))

    def release(self, is_needed: Callable[[], bool], at_once: bool = False) -> bool:
        """Be the supervisor no longer, and leave nothing behind. False if there is work after
        all, or somebody is about to add some: whoever saw us counts on us. `at_once`: then too,
        and the next one finds the environments."""
        with self._environments.alone() as nobody_submits:
            needed = not nobody_submits or is_needed()
            if needed and not at_once:
                return False
            if not needed:
                self._environments.remove_all()
            self._tidy()
            if self._handle >= 0:
                os.close(self._handle)
                self._handle = -1
        return True

    def acquire_notifier_lock(self) -> int | None:
        return self._acquire(self._notifier_lock())

    def _acquire(self, lock: str) -> int | None:
        make_private(self.places.runtime)
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        while not take_lock(handle, fcntl.LOCK_EX):
            if not take_lock(handle, fcntl.LOCK_SH):
                os.close(handle)
                return None
            fcntl.flock(handle, fcntl.LOCK_UN)  # somebody only looks
            time.sleep(0.001)
        try:
            os.ftruncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0)
        except OSError:
            os.close(handle)
            raise
        return handle

    def adopt(self, fork_server: ForkServer | None = None) -> None:
        """From now on, what dead workers of ours leave behind becomes our own child; and so do
        the workers that come from the fork server, which is of no use otherwise."""
        self._adopts = tree.become_reaper()
        if fork_server is not None and self._adopts:
            self._fork_server = fork_server
            self._started.add(fork_server.pid)

    def start_supervisor(self) -> None:
        make_private(self.places.runtime)
        self._coming_up = prestart.take(self.where, self._log()) or self._start(
            "supervise", "--detached"
        )

    def start_worker(self, batch: str, agent: str = "") -> int:
        """`agent` is the profile whose worker it shall be, "" for commands and functions."""
        pid = None
        if self._fork_server is not None and not agent:
            pid = self._fork_server.start([batch], self._log())
        pid = pid or self._start("work", batch, *([agent] if agent else []))
        self._started.add(pid)
        if agent:  # started by the agent itself, the server would be ended with its attempt
            self._started.add(self._start("mcp", "" if "://" in self.where else self.where))
        return pid

    def start_notifier(self) -> None:
        """None is needed if one is at it. It is no worker, but is left alone like one."""
        make_private(self.places.runtime)
        lock = os.open(self._notifier_lock(), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if take_lock(lock, fcntl.LOCK_SH):
                self._started.add(self._start("notify"))
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
        self, worker: Worker, remains: Leftovers | None, held: Collection[str]
    ) -> int | None:
        try:
            return self._end_marked(worker, remains, held) + self._end_adopted()
        except tree.TreeSurvived:
            return None

    def _end_marked(self, worker: Worker, remains: Leftovers | None, held: Collection[str]) -> int:
        """Without a journal, any attempt that it held may have been running, and its group is
        looked for by name."""
        marks, leader, group = [mark_of(worker)], None, None
        if remains is None:
            marks += held
            found = Group.find(group_of(worker))
            group = found.path if found else None
        else:
            group = remains.group
            if remains.running is not None:
                token = parse_token(remains.running)
                marks.append(f"{token.task}.{token.attempt}")
                leader = remains.leader
        return len(tree.end_leftovers(marks, leader, group, GRACE))

    def _end_adopted(self) -> int:
        """Whoever is our child and no worker was left behind by one, marked or not. Workers
        themselves are left for `reap`, which tells how they ended."""
        if not self._adopts or tree.alone(self._started):
            return 0
        return len(tree.stop_descendants(GRACE, spare=self._started))

    def forget_leftovers(self, worker: Worker, remains: Leftovers) -> None:
        if remains.group is not None:
            Group(remains.group).remove()
        journal.forget(self.places.runtime, worker)

    def signal(self, worker: Worker, what: str) -> None:
        """Through a pidfd and only if it is still that process: nobody else is ever hit."""
        with suppress(ProcessLookupError):
            handle = os.pidfd_open(worker.pid)
            try:
                if LocalHost().process_start(worker.pid) == worker.pid_start:
                    signal.pidfd_send_signal(handle, SIGNALS[what])
            finally:
                os.close(handle)

    def reap(self) -> list[tuple[int, int]]:
        ended = [(each.pid, os.waitstatus_to_exitcode(each.status)) for each in tree.reap()]
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
        return {pid: sum(p.rss for p in tree.family(pid) if p.lives) for pid in workers}

    def _tidy(self) -> None:
        """Before the supervisor ends: nothing is told any more, and no group is left of a worker
        that died before it could write down that it had one."""
        remove_abandoned_groups(WORKER_GROUP)
        for name in (STATUS, f"{STATUS}.new"):
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(self.places.runtime, name))

    def _start(self, *words: str) -> int:
        env = {**self._environment, "HYPERVISOR_STORE": self.where}
        return spawn(*words, env=env, log=self._log())

    def _log(self) -> str:
        os.makedirs(self.places.data, mode=0o700, exist_ok=True)
        return os.path.join(self.places.data, LOG)

    def _notifier_lock(self) -> str:
        return os.path.join(self.places.runtime, "notifier.lock")

    def _lock(self) -> str:
        return supervisor_lock(self.places)


def mark_of(worker: Worker) -> str:
    """What a worker's own helpers carry in their environment."""
    return f"worker.{_only(worker)}"


def group_of(worker: Worker) -> str:
    """The name of a worker's cgroup. Containers that share a hierarchy have the same pids."""
    return f"{WORKER_GROUP}{_only(worker)}"


def _only(worker: Worker) -> str:
    """What tells a worker's process from all others, on this machine and elsewhere."""
    from hashlib import blake2b

    text = f"{worker.boot} {worker.pid} {worker.pid_start}"
    return blake2b(text.encode(), digest_size=12).hexdigest()
