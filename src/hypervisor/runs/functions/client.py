"""Runs Python functions as attempts: the worker's end. One interpreter serves many attempts.

If the interpreter dies, the running attempt fails and the next start makes a new one. Nothing here
waits for the function: the poll loop calls `finish` when `fileno` is readable, or after `reaped`
when it has collected the interpreter itself.
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress

from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput
from hypervisor.core.records import NamedTuple
from hypervisor.queue.attempt import Ended, signal_name
from hypervisor.queue.task import Json
from hypervisor.runs.functions import interpreter

PIECE = 1 << 16  # bytes; the capacity of a pipe
ABOVE_FIXED = 10  # the interpreter's fixed descriptors are below
DEFAULT_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD)


class FunctionRunner:
    """Runs a function on one item at a time: start, wait for `fileno`, finish."""

    def __init__(
        self, function: str, cwd: str, env: dict[str, str], python: str | None = None
    ) -> None:
        self.pid: int | None = None
        self.load_error: str | None = None  # why the function could not be imported
        self._env = env
        self._argv = (
            python or sys.executable,
            os.path.abspath(interpreter.__file__),
            function,
            os.path.abspath(cwd),
        )
        self._pipes: _Pipes | None = None
        self._death: _Death | None = None
        self._running = False
        self._received = b""
        self._spent = 0.0
        self._known_peak = 0

    def start(
        self,
        item: Json,
        output: str,
        note: str = "",
        place: tuple[str, Mapping[str, str]] | None = None,
    ) -> None:
        """Start an attempt, perhaps in another folder and with more variables. OSError: Python not
        found, or no space left; nothing was started."""
        output = os.path.abspath(output)
        request = {"item": item, "output": output, "note": note}
        if place is not None:
            request |= {"folder": place[0], "env": dict(place[1])}
        line = json.dumps(request).encode() + b"\n"
        if not self._is_alive():
            self.stop()
            self._spawn(output)
        assert self._pipes is not None
        if len(line) > interpreter.MAX_LINE_SIZE:
            _replace(self._pipes.request_file, line)
            line = b"%d\n" % len(line)
        with suppress(BrokenPipeError):  # it has just died: `finish` reports that
            os.write(self._pipes.requests, line)
        self._running = True

    def fileno(self) -> int:
        """Readable when `finish` has something to return; changes with every new interpreter."""
        if self._pipes is None:
            raise ValueError("no attempt was started")
        return self._pipes.answers

    def finish(self) -> Ended | None:
        """How the attempt ended; None if it is still running, or none was started."""
        if not self._running:
            return None
        ended = self._ended()
        self._running = ended is None
        return ended

    def reaped(self, pid: int, status: int, cpu: float, peak: int) -> None:
        """The interpreter was collected elsewhere; `finish` returns the outcome of the attempt."""
        if pid == self.pid:
            self._death = _Death(os.waitstatus_to_exitcode(status), cpu, peak)

    def stop(self) -> None:
        """Kill the interpreter and its process group."""
        self._kill_and_collect()
        if self._pipes is not None:
            for fd in self._pipes:
                os.close(fd)
        self.pid = self._pipes = self._death = None
        self._running = False
        self._received = b""
        self._spent = 0.0
        self._known_peak = 0

    def _is_alive(self) -> bool:
        if self.pid is None or self._death is not None:
            return False
        self._collect(os.WNOHANG)
        return self._death is None

    def _spawn(self, output: str) -> None:
        pipes, theirs = _make_pipes(output)
        try:
            self.pid = os.posix_spawnp(
                self._argv[0],
                self._argv,
                self._env,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    *((os.POSIX_SPAWN_DUP2, fd, fixed) for fd, fixed in theirs),
                ],
                setsid=True,
                setsigmask=(),
                setsigdef=DEFAULT_SIGNALS,
            )
        except OSError:
            for fd in pipes:
                os.close(fd)
            raise
        finally:
            for fd in {fd for fd, _ in theirs} - set(pipes):
                os.close(fd)
        self._pipes = pipes
        # It starts on our memory, so the peak that the kernel reports is at least ours.
        self._known_peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    def _ended(self) -> Ended | None:
        closed = self._receive()
        while b"\n" in self._received:
            line, _, self._received = self._received.partition(b"\n")
            ended = self._parse_answer(line)
            if ended is not None:
                return ended
        if closed or self._death is not None:
            return self._died()
        return None

    def _receive(self) -> bool:
        """Read the answers so far; True at end of file."""
        with suppress(BlockingIOError):
            while not self._received.endswith(b"\n"):
                piece = os.read(self.fileno(), PIECE)
                if not piece:
                    return True
                self._received += piece
        return False

    def _parse_answer(self, line: bytes) -> Ended | None:
        try:
            answer = json.loads(line)
            if "ready" in answer:
                return self._loaded(answer)
            ended = self._answered(answer)
        except RecursionError:
            return Ended(1, None, 0.0, 0, error="the result is nested too deeply")
        except (ValueError, KeyError, TypeError):
            self.stop()
            return Ended(None, None, 0.0, 0, error="the interpreter sent an invalid answer")
        if line.count(b"[") + line.count(b"{") > validate.MAX_LEVELS:
            return _refuse_deep_result(ended)
        return ended

    def _loaded(self, answer: Json) -> Ended | None:
        cpu = float(answer["cpu"])
        if answer["ready"]:
            self._spent = cpu
            self.load_error = None
            return None
        self.load_error = str(answer["error"])
        self.stop()
        return Ended(1, None, cpu, 0, error=self.load_error)

    def _answered(self, answer: Json) -> Ended:
        total, peak = float(answer["cpu"]), int(answer["peak"])
        cpu, self._spent = max(total - self._spent, 0.0), total
        self._known_peak = max(self._known_peak, peak)
        if answer["ok"]:
            return Ended(0, None, cpu, peak, result=answer["result"])
        return Ended(1, None, cpu, peak, error=str(answer["error"]))

    def _died(self) -> Ended:
        self._kill_and_collect()
        code, cpu, peak = self._death or _Death(None, 0.0, 0)
        cpu = max(cpu - self._spent, 0.0)
        peak = peak if peak > self._known_peak else 0  # an earlier attempt's, or ours
        self.stop()
        if code is None:
            return Ended(None, None, cpu, peak, error="the interpreter died")
        if code < 0:
            error = f"the interpreter died ({signal_name(-code)})"
            return Ended(None, -code, cpu, peak, error=error)
        return Ended(code, None, cpu, peak, error=f"the interpreter died (exit code {code})")

    def _kill_and_collect(self) -> None:
        """Killing it does not change the exit status of one that was already exiting."""
        if self.pid is None or self._death is not None:
            return
        with suppress(ChildProcessError, ProcessLookupError):
            # Its pid cannot be reused before it is collected, so this hits no other process.
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            os.killpg(self.pid, signal.SIGKILL)
        self._collect(0)

    def _collect(self, options: int) -> None:
        assert self.pid is not None
        try:
            pid, status, usage = os.wait4(self.pid, options)
        except ChildProcessError:
            self._death = _Death(None, 0.0, 0)  # collected elsewhere
            return
        if pid:
            cpu, peak = usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024
            self._death = _Death(os.waitstatus_to_exitcode(status), cpu, peak)


class _Pipes(NamedTuple):
    """Our ends, and the file for requests that are too long for a pipe."""

    requests: int
    answers: int
    request_file: int


class _Death(NamedTuple):
    """How the interpreter ended, and its total usage; code None: unknown."""

    code: int | None
    cpu: float
    peak: int


def _refuse_deep_result(ended: Ended) -> Ended:
    try:
        validate.json_value("the result", ended.result)
    except InvalidInput as error:
        return ended._replace(exit_code=1, result=None, error=str(error))
    return ended


def _make_pipes(output: str) -> tuple[_Pipes, list[tuple[int, int]]]:
    """Our ends, and the interpreter's with the descriptor numbers they get there.

    Anything that the import prints, before the first item, goes to the output too.
    """
    printed = _above(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    their_requests, requests = map(_above, os.pipe())
    answers, their_answers = map(_above, os.pipe())
    # For long requests: a pipe would block while the interpreter is still importing.
    request_file = _above(os.memfd_create("hypervisor-request"))
    os.set_blocking(answers, False)
    theirs = [
        (printed, 1),
        (printed, 2),
        (their_requests, interpreter.REQUESTS),
        (their_answers, interpreter.ANSWERS),
        (request_file, interpreter.REQUEST_FILE),
    ]
    return _Pipes(requests, answers, request_file), theirs


def _above(fd: int) -> int:
    """Move a descriptor out of the way of the interpreter's fixed ones."""
    if fd >= ABOVE_FIXED:
        return fd
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, ABOVE_FIXED)
    os.close(fd)
    return moved


def _replace(file: int, content: bytes) -> None:
    os.ftruncate(file, 0)
    offset, remaining = 0, memoryview(content)
    while remaining:
        written = os.pwrite(file, remaining, offset)
        offset, remaining = offset + written, remaining[written:]
