"""Verifies commits: runs the user's commands on exactly the tree that would land.

A bench is a checkout that is used again and again, so that what git ignores (caches, build results)
stays warm. A result is kept for the tree and the commands, and the output in a file. Whatever a
verification has started ends with it, or, if we were killed, before its bench is used again.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Protocol

from hypervisor.core.places import digest
from hypervisor.core.records import NamedTuple
from hypervisor.git.bench import Bench, Benches, Cancelled, leader_of
from hypervisor.git.command import Git
from hypervisor.git.stack import tree_of

TIME_LIMIT = 3600.0  # seconds, for all commands together
MAX_OUTPUT = 200 * 2**20  # bytes
POLL = 0.05  # seconds
GRACE = 2.0  # seconds between SIGTERM and SIGKILL
UNVERIFIED = "NOT VERIFIED: no --verify command is set; what lands was not tested"


class Verdict(NamedTuple):
    """How a verification ended. `command` is the one that failed, or the last one. `exit_code` is
    None if it was killed; `reason` says in one line why it failed. `runs`: how often this tree was
    verified. Not `verified`: no commands are set, so nothing was checked."""

    passed: bool
    exit_code: int | None = 0
    output_path: str = ""
    seconds: float = 0.0
    command: str = ""
    reason: str = ""
    runs: int = 1
    verified: bool = True


class VerdictCache(Protocol):
    """Verdicts by tree and digest of the commands."""

    def get(self, tree: str, digest: str) -> Verdict | None: ...

    def put(self, tree: str, digest: str, verdict: Verdict) -> None: ...


class MemoryCache:
    """A cache that ends with the process."""

    def __init__(self) -> None:
        self.verdicts: dict[tuple[str, str], Verdict] = {}

    def get(self, tree: str, digest: str) -> Verdict | None:
        return self.verdicts.get((tree, digest))

    def put(self, tree: str, digest: str, verdict: Verdict) -> None:
        self.verdicts[tree, digest] = verdict


class Verifier:
    """Thread-safe: as many verifications at a time as there are free benches."""

    def __init__(
        self,
        hub: Git,
        benches: Benches,
        commands: Sequence[str],
        *,
        outputs: str,
        cache: VerdictCache,
        environment: Mapping[str, str],
        time_limit: float = TIME_LIMIT,
        while_running: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """`commands` are lines for the shell, from the user. `outputs` is a folder for logs.
        `while_running`: held by each run."""
        self._while_running = while_running
        self._hub, self._benches, self._cache = hub, benches, cache
        self.commands, self._outputs, self._time_limit = tuple(commands), outputs, time_limit
        self.digest = digest(*self.commands)
        self._environment = {
            name: value for name, value in environment.items() if not name.startswith("GIT_")
        }

    def known(self, commit: str) -> Verdict | None:
        """The verdict on its tree, if there is one already."""
        if not self.commands:
            return Verdict(True, verified=False, reason=UNVERIFIED, runs=0)
        return self._cache.get(tree_of(self._hub, commit), self.digest)

    def verify(
        self, commit: str, *, again: bool = False, cancel: threading.Event | None = None
    ) -> Verdict:
        """Run the commands on the tree of a commit, unless the verdict is known. `again`: in any
        case, and without anything that git ignores in the bench."""
        before = self.known(commit)
        if before is not None and (not again or not before.verified):
            return before
        tree = tree_of(self._hub, commit)
        runs = 1 + (before.runs if before else 0)
        with self._benches.take(cancel) as bench, self._while_running():
            bench.prepare(commit, tree, pristine=again)
            verdict = self._run(bench, self._output_path(tree, runs), cancel)._replace(runs=runs)
        self._cache.put(tree, self.digest, verdict)
        return verdict

    def _output_path(self, tree: str, runs: int) -> str:
        os.makedirs(self._outputs, mode=0o700, exist_ok=True)
        ending = f".{runs}.log" if runs > 1 else ".log"
        return os.path.join(self._outputs, f"{tree}-{self.digest}{ending}")

    def _run(self, bench: Bench, output: str, cancel: threading.Event | None) -> Verdict:
        started = time.monotonic()
        handle = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        try:
            verdict = Verdict(True)
            for command in self.commands:
                os.write(handle, f"$ {command}\n".encode("utf-8", "surrogateescape"))
                watch = _Watch(handle, self._time_limit, started, cancel)
                verdict = self._run_one(bench, command, watch)
                if not verdict.passed:
                    os.write(handle, f"\n{verdict.reason}\n".encode("utf-8", "replace"))
                    break
            return verdict._replace(output_path=output, seconds=time.monotonic() - started)
        finally:
            os.close(handle)

    def _run_one(self, bench: Bench, command: str, watch: _Watch) -> Verdict:
        process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            cwd=bench.folder,
            env={**self._environment, **bench.environment()},
            stdin=subprocess.DEVNULL,
            stdout=watch.output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        leader = leader_of(process.pid)
        try:
            why_stopped = watch.until_end_of(process)
        finally:
            bench.end_processes(leader, GRACE if process.poll() is None else 0.0)
            process.wait()
        code = process.returncode
        if why_stopped:
            return Verdict(False, None, command=command, reason=f"{command}: {why_stopped}")
        if code:
            how = f"exited with {code}" if code > 0 else f"was killed by signal {-code}"
            exit_code = code if code > 0 else None
            return Verdict(False, exit_code, command=command, reason=f"{command}: {how}")
        return Verdict(True, 0, command=command)


class _Watch:
    """Waits for the end of a command, up to its time limit."""

    def __init__(
        self, output: int, limit: float, started: float, cancel: threading.Event | None
    ) -> None:
        self.output, self._limit, self._started, self._cancel = output, limit, started, cancel

    def until_end_of(self, process: subprocess.Popen[bytes]) -> str:
        """Why it has to be stopped; "" if it has ended."""
        while True:
            with suppress(subprocess.TimeoutExpired):
                process.wait(POLL)
                return ""
            if time.monotonic() - self._started > self._limit:
                return f"took longer than {self._limit:g} s"
            if os.fstat(self.output).st_size > MAX_OUTPUT:
                return f"printed more than {MAX_OUTPUT >> 20} MB"
            if self._cancel is not None and self._cancel.is_set():
                raise Cancelled
