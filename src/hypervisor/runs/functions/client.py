"""Python functions as attempts: the worker's side of the runner, one interpreter kept for many.

An interpreter that dies costs the attempt it was running; the next start makes a
new one. Nothing here waits for the function: the poll loop asks `finish` when
`fileno` is readable, or when it has collected the runner itself and said so with
`reaped`.
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
import signal
import sys
from contextlib import suppress
from typing import NamedTuple

from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput
from hypervisor.queue.attempt import Ended, signal_name
from hypervisor.queue.task import Json
from hypervisor.runs.functions import interpreter

PIECE = 1 << 16  # what a pipe holds
ABOVE_FIXED = 10  # the runner's fixed descriptors lie below
DEFAULT_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD)


class FunctionRunner:
    """Runs a function on one item at a time: start, wait for `fileno`, finish."""

    def __init__(
        self, function: str, cwd: str, env: dict[str, str], python: str | None = None
    ) -> None:
        self.pid: int | None = None
        self.load_error: str | None = None  # set once the function turned out not to be there
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
        self._said = b""
        self._spent = 0.0
        self._known_peak = 0

    def start(self, item: Json, output: str, note: str = "") -> None:
        """Begin an attempt. OSError: there is no such Python, or no room; nothing was begun."""
        output = os.path.abspath(output)
        line = json.dumps({"item": item, "output": output, "note": note}).encode() + b"\n"
        if not self._lives():
            self.stop()
            self._spawn(output)
        assert self._pipes is not None
        if len(line) > interpreter.LARGEST_LINE:
            _replace(self._pipes.request_file, line)
            line = b"%d\n" % len(line)
        with suppress(BrokenPipeError):  # died just now: finish says so
            os.write(self._pipes.requests, line)
        self._running = True

    def fileno(self) -> int:
        """Readable when there is something to `finish`; another one after each new start."""
        if self._pipes is None:
            raise ValueError("no attempt was started")
        return self._pipes.answers

    def finish(self) -> Ended | None:
        """How the attempt ended; None if it has not, or none was running."""
        if not self._running:
            return None
        ended = self._ended()
        self._running = ended is None
        return ended

    def reaped(self, pid: int, status: int, cpu: float, peak: int) -> None:
        """Somebody else has collected the runner; `finish` tells what became of the attempt."""
        if pid == self.pid:
            self._death = _Death(os.waitstatus_to_exitcode(status), cpu, peak)

    def stop(self) -> None:
        """End the interpreter and its process group at once, with whatever runs in it."""
        self._kill_and_collect()
        if self._pipes is not None:
            for fd in self._pipes:
                os.close(fd)
        self.pid = self._pipes = self._death = None
        self._running = False
        self._said = b""
        self._spent = 0.0
        self._known_peak = 0

    def _lives(self) -> bool:
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
        # It starts on our memory, so what the kernel says of it in the end is no less than ours.
        self._known_peak = _in_bytes(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)

    def _ended(self) -> Ended | None:
        closed = self._receive()
        while b"\n" in self._said:
            line, _, self._said = self._said.partition(b"\n")
            ended = self._understand(line)
            if ended is not None:
                return ended
        if closed or self._death is not None:
            return self._died()
        return None

    def _receive(self) -> bool:
        """Read what the runner said so far; True if it will say no more."""
        with suppress(BlockingIOError):
            while not self._said.endswith(b"\n"):
                piece = os.read(self.fileno(), PIECE)
                if not piece:
                    return True
                self._said += piece
        return False

    def _understand(self, line: bytes) -> Ended | None:
        try:
            answer = json.loads(line)
            if "ready" in answer:
                return self._loaded(answer)
            ended = self._answered(answer)
        except RecursionError:
            return Ended(1, None, 0.0, 0, error="the result is nested too deeply")
        except (ValueError, KeyError, TypeError):
            self.stop()
            return Ended(None, None, 0.0, 0, error="the interpreter sent no valid answer")
        if line.count(b"[") + line.count(b"{") > validate.MOST_LEVELS:
            return _refused_if_deep(ended)
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
        peak = peak if peak > self._known_peak else 0  # else of an earlier attempt, or ours
        self.stop()
        if code is None:
            return Ended(None, None, cpu, peak, error="the interpreter died")
        if code < 0:
            error = f"the interpreter died ({signal_name(-code)})"
            return Ended(None, -code, cpu, peak, error=error)
        return Ended(code, None, cpu, peak, error=f"the interpreter died (exit code {code})")

    def _kill_and_collect(self) -> None:
        """The kill does not change how a runner ended that was already on its way out."""
        if self.pid is None or self._death is not None:
            return
        with suppress(ChildProcessError, ProcessLookupError):
            # Until it is collected the pid is its own, so nobody else can be hit.
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            os.killpg(self.pid, signal.SIGKILL)
        self._collect(0)

    def _collect(self, how: int) -> None:
        assert self.pid is not None
        try:
            pid, status, usage = os.wait4(self.pid, how)
        except ChildProcessError:
            self._death = _Death(None, 0.0, 0)  # collected by somebody who did not tell
            return
        if pid:
            cpu, peak = usage.ru_utime + usage.ru_stime, _in_bytes(usage.ru_maxrss)
            self._death = _Death(os.waitstatus_to_exitcode(status), cpu, peak)


class _Pipes(NamedTuple):
    """Our ends, and the file that requests are put into."""

    requests: int
    answers: int
    request_file: int


class _Death(NamedTuple):
    """How the interpreter ended, and what it used in all its life; code None: nobody knows."""

    code: int | None
    cpu: float
    peak: int


def _in_bytes(maxrss: int) -> int:
    return maxrss * interpreter.MAXRSS_UNIT


def _refused_if_deep(ended: Ended) -> Ended:
    try:
        validate.json_value("the result", ended.result)
    except InvalidInput as error:
        return ended._replace(exit_code=1, result=None, error=str(error))
    return ended


def _make_pipes(output: str) -> tuple[_Pipes, list[tuple[int, int]]]:
    """Our ends, and the runner's with the numbers they get there.

    What is printed before the first item, by the import, goes to the output too.
    """
    printed = _above(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    their_requests, requests = map(_above, os.pipe())
    answers, their_answers = map(_above, os.pipe())
    request_file = _above(_unnamed_file())
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
    """Move a descriptor to where it is not overwritten while the runner's are put in place."""
    if fd >= ABOVE_FIXED:
        return fd
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, ABOVE_FIXED)
    os.close(fd)
    return moved


def _unnamed_file() -> int:
    """For what a pipe would not take without blocking, as the runner may be importing."""
    if sys.platform == "linux":
        return os.memfd_create("hypervisor-request")
    import tempfile

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _replace(file: int, content: bytes) -> None:
    os.ftruncate(file, 0)
    offset, rest = 0, memoryview(content)
    while rest:
        written = os.pwrite(file, rest, offset)
        offset, rest = offset + written, rest[written:]
