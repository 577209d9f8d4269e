"""Runs a worker's attempts: starts them, waits for their end or a signal, ends their trees.

There is one attempt at a time, and the worker is a subreaper, so every process below the worker
belongs to the current attempt.
"""

from __future__ import annotations

import os
import resource
import select
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from hypervisor.inputs.template import Item
from hypervisor.queue.attempt import Ended
from hypervisor.resources.cgroup import Group
from hypervisor.runs.processes import tree
from hypervisor.runs.processes.commands import Command, Commands, Pipes
from hypervisor.runs.processes.signals import Signals
from hypervisor.runs.spec import CommandSpec, FunctionSpec, TreeUsage, WorkSpec, template_of

if TYPE_CHECKING:
    from hypervisor.runs.functions.client import FunctionRunner
    from hypervisor.runs.sandbox.attempt import Attempt
    from hypervisor.runs.sandbox.prepare import Sandbox

AUTOGROUP = "/proc/sys/kernel/sched_autogroup_enabled"
MAX_LIST_LENGTH = 1 << 16


class LocalRunner:
    def __init__(
        self,
        cwd: str,
        work: WorkSpec,
        env: dict[str, str],
        *,
        mark: str,
        group: Group | None,
        niceness: int,
        sandbox: Sandbox | None = None,
    ) -> None:
        """`mark` is for the interpreter of a function, which outlives single attempts."""
        command = work if isinstance(work, CommandSpec) else None
        self._template = template_of(command) if command else None
        self._reads_item = command is not None and command.stdin == "item"
        self._cwd, self._env, self._group, self._niceness = cwd, env, group, niceness
        self._commands = Commands()
        self._function: FunctionRunner | None = None
        if isinstance(work, FunctionSpec):
            self._function = _function_runner(work, cwd, {**env, tree.MARK: mark})
        self._sandbox = sandbox
        self._folder, self._variables = "", {}  # type: str, Mapping[str, str]
        self._root = ""
        self._command: Command | None = None
        self._failed: Ended | None = None
        self._cpu_before = 0.0
        self._least_peak = 0
        self._poll = select.poll()
        tree.become_reaper()
        os.chdir(cwd)
        if group is not None:
            group.enter()  # our children inherit it
        _set_niceness(niceness)
        self._signals = Signals(first_stops=(signal.SIGINT,))
        self._poll.register(self._signals.fileno(), select.POLLIN)

    @property
    def asked(self) -> str:
        return self._signals.asked

    @property
    def fatal_error(self) -> str | None:
        if self._sandbox is not None and self._sandbox.problem:
            return self._sandbox.problem
        return self._function.load_error if self._function is not None else None

    @property
    def leader(self) -> int:
        if self._command is not None:
            return self._command.pid
        return self._function.pid or 0 if self._function is not None else 0

    def work_in(self, folder: str, env: Mapping[str, str], root: str = "") -> None:
        self._folder, self._variables, self._root = folder, env, root or folder

    def evidence(self) -> tuple[str, ...]:
        return self._sandbox.finish() if self._sandbox and not self._sandbox.problem else ()

    def start(self, item: Item, token: str, output: str) -> None:
        self._begin()
        if self._function is not None and self.fatal_error and self._sandbox:
            self._failed = Ended(None, None, 0.0, 0, error=self.fatal_error)
            return
        if self._function is not None:
            place = (self._folder, self._variables) if self._folder else None
            self._function.start(item.value, output, item.note, place)
            self._poll.register(self._function.fileno(), select.POLLIN)
            return
        assert self._template is not None
        name, _, _ = token.rpartition(".")
        env = {**self._env, "HV_TASK": name.partition(".")[0], tree.MARK: name}
        if item.note:
            env["HV_NOTE"] = item.note
        if self._folder:
            env |= self._variables
            os.chdir(self._folder)
        stdin = os.fsencode(item.text + "\n") if self._reads_item else None
        argv: Sequence[str] = self._template.render(item)
        if self._sandbox is not None:
            from hypervisor.runs.sandbox.attempt import Attempt

            cwd = self._folder or self._cwd
            return self._confine(Attempt(name, tuple(argv), env, cwd, self._root), output, stdin)
        return self._launch(argv, env, output, stdin)

    def _confine(self, attempt: Attempt, output: str | Pipes, stdin: bytes | None) -> None:
        """Launch an attempt in the sandbox. Never without it."""
        assert self._sandbox is not None
        self._failed = self._sandbox.refusal(attempt)
        if self._failed is None:
            prepared = self._sandbox.prepare(attempt)
            self._launch(prepared.argv, prepared.env, output, stdin)

    def _begin(self) -> None:
        self._cpu_before = _reaped_cpu()

    def _launch(
        self, argv: Sequence[str], env: dict[str, str], output: str | Pipes, stdin: bytes | None
    ) -> None:
        started = self._commands.start(argv, env, output, stdin)
        if isinstance(started, Ended):
            self._failed = started
            return
        self._command = started
        self._poll.register(started.fileno(), select.POLLIN)

    def wait(self, seconds: float) -> Ended | None:
        if self._failed is not None:
            failed, self._failed = self._failed, None
            return failed
        ready = [handle for handle, _ in self._poll.poll(seconds * 1000)]
        if self._signals.fileno() in ready:
            self._signals.clear()
        attempt = self._command or self._function
        assert attempt is not None
        if attempt.fileno() in ready:
            return self._finish()
        return None if ready else self._check_for_death()

    def _check_for_death(self) -> Ended | None:
        """A process forked by the interpreter may hold its pipe open after its death."""
        if self._function is None:
            return None
        for reaped in tree.reap():
            self._function.reaped(*reaped)
        return self._finish()

    def stop(self, grace: float) -> Ended:
        self._forget()
        if self._function is not None:
            self._function.stop()
        reaped = self._end_all(grace)
        leader = self._command.pid if self._command else 0
        if self._command is not None:
            self._command.close()
            self._command = None
        code = next((os.waitstatus_to_exitcode(r.status) for r in reaped if r.pid == leader), None)
        return Ended(
            code if code is not None and code >= 0 else None,
            -code if code is not None and code < 0 else None,
            self._cpu(),
            max((r.peak for r in reaped if self._is_own_peak(r.peak)), default=0),
        )

    def _end_all(self, grace: float) -> list[tree.Reaped]:
        """Until no process is left. One that is stuck in the kernel is waited for: while it lives,
        no other worker gets the task."""
        reaped: list[tree.Reaped] = []
        while True:
            try:
                return reaped + tree.stop_descendants(grace, group=self._group)
            except tree.TreeSurvived as stuck:
                reaped += stuck.reaped
                self.pause(1.0)

    def clear(self, grace: float) -> int:
        if not self._has_children():
            return 0
        # Processes that a function started belong to its interpreter and end with it.
        spare = [self._function.pid] if self._function and self._function.pid else []
        tree.reap(spare)
        running = [p for p in tree.descendants(os.getpid(), tree.snapshot(), spare) if p.lives]
        if running:
            tree.stop_descendants(grace, spare, self._group)
        return len(running)

    def vital(self) -> TreeUsage:
        alive = [process for process in self._tree() if process.lives]
        at_work = self._at_work(alive)
        return TreeUsage(
            sum(process.cpu + process.waited for process in at_work) + self._cpu(),
            sum(process.rss for process in alive),
            tree.written([process.pid for process in at_work]),
            len(alive),
        )

    def _at_work(self, alive: list[tree.Process]) -> list[tree.Process]:
        """The processes whose CPU time and writes show that the attempt is not stuck."""
        return alive

    def exact_memory(self) -> int:
        return tree.proportional([process.pid for process in self._tree() if process.lives])

    def settle_in(self) -> None:
        """With autogroups, niceness only counts within a session; so set that of the autogroup."""
        if self._command is not None and self._niceness and _flag(AUTOGROUP):
            with suppress(OSError), open(f"/proc/{self._command.pid}/autogroup", "w") as file:
                file.write(str(self._niceness))

    def pause(self, seconds: float) -> None:
        self._signals.wait(seconds)

    def close(self) -> None:
        if self._function is not None:
            self._function.stop()
        tree.stop_descendants(0.5, group=self._group)
        if self._group is not None:
            Group(os.path.dirname(self._group.path)).enter()  # a group must be empty to be removed
            self._group.remove()

    def _finish(self) -> Ended | None:
        if self._function is not None:
            handle = self._function.fileno()
            ended = self._function.finish()
            if ended is not None:
                self._poll.unregister(handle)
            return ended
        assert self._command is not None
        self._poll.unregister(self._command.fileno())
        ended, self._command = self._command.finish(), None
        return ended if self._is_own_peak(ended.peak) else ended._replace(peak=0)

    def _is_own_peak(self, peak: int) -> bool:
        """Whether this peak is the reaped process's own, not ours, on whose memory it started. Our
        peak only grows, so it is only read again for a larger one."""
        if peak > self._least_peak:
            self._least_peak = _own_peak()
        return peak > self._least_peak

    def _forget(self) -> None:
        """Before a handle is closed: polling a stale one would return at once, forever."""
        attempt = self._command or self._function
        if attempt is not None:
            with suppress(KeyError, OSError, ValueError):
                self._poll.unregister(attempt.fileno())

    def _tree(self) -> list[tree.Process]:
        return tree.descendants(os.getpid(), tree.snapshot())

    def _has_children(self) -> bool:
        if self._function is not None and self._function.pid:
            return _children(os.getpid()) != [self._function.pid]
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        return True

    def _cpu(self) -> float:
        return _reaped_cpu() - self._cpu_before


def _function_runner(work: FunctionSpec, cwd: str, env: dict[str, str]) -> FunctionRunner:
    from hypervisor.runs.functions.client import FunctionRunner  # commands can do without

    return FunctionRunner(work.name, cwd, env, work.python)


def _children(pid: int) -> Sequence[int]:
    """Called after every item of a function, so without the cost of a file object."""
    with suppress(OSError):
        handle = os.open(f"/proc/{pid}/task/{pid}/children", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return [int(pid_text) for pid_text in os.read(handle, MAX_LIST_LENGTH).split()]
        finally:
            os.close(handle)
    return [p.pid for p in tree.snapshot().values() if p.parent == pid]


def _set_niceness(niceness: int) -> None:
    with suppress(OSError):
        os.nice(max(niceness - os.nice(0), 0))


def _flag(path: str) -> bool:
    with suppress(OSError), open(path, encoding="ascii") as file:
        return file.read().strip() == "1"
    return False


def _reaped_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _own_peak() -> int:
    """A spawned process starts on our memory, so its reported peak is at least ours."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
