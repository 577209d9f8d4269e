"""Starts child processes quickly and ends them reliably.

A small process imports everything once and then only forks, before any store
is open: a child costs milliseconds, so that storms can kill hundreds. Each
child runs one function of a module of jobs, and is connected to its starter by a socket.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from contextlib import suppress
from typing import Any, NoReturn

from hypervisor.selftest.bugs import plant

PR_SET_PDEATHSIG = 1
DEADLINE = 180.0


class Child:
    """A running job; lines of JSON go to it and come back."""

    def __init__(self, fork_server: ForkServer, pid: int, line: socket.socket) -> None:
        self.pid = pid
        self._fork_server = fork_server
        self._line = line
        self._unread = b""

    def hear(self, seconds: float = DEADLINE) -> Any:
        """The next line it writes; EOFError when there will be none."""
        until = time.monotonic() + seconds
        while b"\n" not in self._unread:
            ready = select.select([self._line], [], [], max(until - time.monotonic(), 0))[0]
            if not ready:
                raise TimeoutError(f"child {self.pid} said nothing for {seconds} s")
            try:
                piece = self._line.recv(1 << 16)
            except ConnectionResetError:
                piece = b""
            if not piece:
                raise EOFError(f"child {self.pid} has ended")
            self._unread += piece
        first, _, self._unread = self._unread.partition(b"\n")
        return json.loads(first)

    def hear_all(self, seconds: float = DEADLINE) -> list[Any]:
        """Everything it has written by the time it ends."""
        heard = []
        while True:
            try:
                heard.append(self.hear(seconds))
            except EOFError:
                return heard

    def tell(self, message: Any) -> None:
        self._line.sendall(json.dumps(message).encode() + b"\n")

    def call(self, verb: str, *args: Any, **named: Any) -> Any:
        """Make a `puppet` call an operation; its errors are raised as `Refused`."""
        self.tell([verb, args, named])
        answer = self.hear()
        if "error" in answer:
            raise Refused(answer["error"], answer["message"])
        return answer["answer"]

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def wait(self, seconds: float = DEADLINE) -> int:
        """Its exit code (minus the signal that ended it)."""
        return self._fork_server.wait(self.pid, seconds)

    def hang_up(self) -> None:
        self._line.close()


class Refused(Exception):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class ForkServer:
    def __init__(self, jobs: str = "hypervisor.selftest.jobs") -> None:
        """`jobs`: the module of the functions that children run."""
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "hypervisor.selftest.crew", str(theirs.fileno()), jobs],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        self._ended: dict[int, int] = {}
        self._children: list[Child] = []

    def start(self, job: str, *args: Any, bug: str | None = None) -> Child:
        """`bug`: planted into the child first."""
        ours, theirs = socket.socketpair()
        request = json.dumps(["start", job, args, bug]).encode()
        socket.send_fds(self._control, [request], [theirs.fileno()])
        theirs.close()
        child = Child(self, self._answer(), ours)
        self._children.append(child)
        return child

    def ended(self) -> dict[int, int]:
        """The children that have ended, by pid; this call collects them."""
        self._control.send(b'["ended"]')
        self._ended.update((pid, code) for pid, code in self._answer())
        return self._ended

    def wait(self, pid: int, seconds: float = DEADLINE) -> int:
        until = time.monotonic() + seconds
        while pid not in self.ended():
            if time.monotonic() >= until:
                raise TimeoutError(f"child {pid} still runs after {seconds} s")
            time.sleep(0.002)
        return self._ended[pid]

    def clear(self) -> None:
        """End every child that still runs."""
        for child in self._children:
            child.hang_up()
            if child.pid not in self.ended():
                child.kill()
                self.wait(child.pid)
        self._children.clear()
        self._ended.clear()

    def close(self) -> None:
        self.clear()
        self._control.close()
        self._process.wait(DEADLINE)

    def _answer(self) -> Any:
        ready = select.select([self._control], [], [], DEADLINE)[0]
        if not ready:
            raise TimeoutError("the fork server does not answer")
        return json.loads(self._control.recv(1 << 20))


def _main(control: socket.socket, jobs_module: str) -> None:
    for module in ("api", "store.sqlite", "store.postgres", "resources.host"):
        with suppress(ModuleNotFoundError):  # the driver of PostgreSQL is an extra
            importlib.import_module(f"hypervisor.{module}")
    jobs = importlib.import_module(jobs_module)
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1 << 20, 1)
        if not message:
            return
        request = json.loads(message)
        if request[0] == "ended":
            answer: Any = list(_wait_for())
        else:
            answer = os.fork()
            if answer == 0:
                control.close()
                plant(request[3])
                _run(getattr(jobs, request[1]), request[2], descriptors[0])
            os.close(descriptors[0])
        control.send(json.dumps(answer).encode())


def _wait_for() -> Any:
    try:
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            yield pid, os.waitstatus_to_exitcode(status)
    except ChildProcessError:
        return


def _run(job: Any, args: list[Any], descriptor: int) -> NoReturn:
    """In the child: the socket becomes its input and output."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.dup2(descriptor, 0)
    os.dup2(descriptor, 1)
    os.close(descriptor)
    code = 1
    try:
        job(*args)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


if __name__ == "__main__":
    _main(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
