"""Starts commands, without a shell and in their own session.

The output of a command goes directly to its file. To follow it, pass the ends of pipes instead.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
from collections.abc import Mapping, Sequence

from hypervisor.core.records import NamedTuple
from hypervisor.queue.attempt import Ended

NOT_FOUND, NOT_EXECUTABLE = 127, 126
# Errors of the host, not of the command: it may start a little later.
HOST_TROUBLE = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.EIO,
    errno.EAGAIN,
    errno.ENOMEM,
    errno.EMFILE,
    errno.ENFILE,
)
# A worker catches some signals and ignores others; its commands must not inherit that.
RESET = (
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGPIPE,
    signal.SIGHUP,
    signal.SIGCHLD,
    signal.SIGXFSZ,
    signal.SIGIO,
)
WRITE = os.O_WRONLY | os.O_CREAT | os.O_APPEND
ERRORS_TOO = (os.POSIX_SPAWN_DUP2, 1, 2)


class Pipes(NamedTuple):
    """The writing ends of two pipes, or of one pipe twice."""

    out: int
    err: int


class Command:
    """A started command; `fileno()` becomes readable when it has ended."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        try:
            self._pidfd = os.pidfd_open(pid)
        except OSError:  # it could not be watched, so it must not run
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise

    def fileno(self) -> int:
        return self._pidfd

    def finish(self) -> Ended:
        """Wait for the command; returns how it ended."""
        _, status, usage = os.wait4(self.pid, 0)
        self.close()
        code = os.waitstatus_to_exitcode(status)
        return Ended(
            code if code >= 0 else None,
            -code if code < 0 else None,
            usage.ru_utime + usage.ru_stime,
            usage.ru_maxrss * 1024,
        )

    def close(self) -> None:
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1


class Commands:
    """Starts commands in the current folder; caches the paths of programs."""

    def __init__(self) -> None:
        self._programs: dict[str, str] = {}
        self._nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)  # once for all of them

    def start(
        self, argv: Sequence[str], env: dict[str, str], output: str | Pipes, stdin: bytes | None
    ) -> Command | Ended:
        """The running command, or how it failed to start. OSError: this host cannot start anything
        just now."""
        program = self._find(argv[0], env)
        if program is None:
            return not_runnable(argv[0], env)
        feed = _as_file(stdin) if stdin is not None else None
        stdin_from = self._nothing if feed is None else feed
        actions = [(os.POSIX_SPAWN_DUP2, stdin_from, 0), *_writing_to(output)]
        try:
            return Command(_spawn(program, argv, env, actions))
        except OSError as error:
            if error.errno in HOST_TROUBLE:
                raise
            if isinstance(output, str):  # raises if the output file is the problem
                os.close(os.open(output, WRITE, 0o600))
            code = NOT_FOUND if error.errno == errno.ENOENT else NOT_EXECUTABLE
            return _failed(code, f"cannot start {argv[0]}: {error.strerror}.")
        finally:
            if feed is not None:
                os.close(feed)

    def _find(self, name: str, env: dict[str, str]) -> str | None:
        """A missing program is looked for again: an earlier task may create it."""
        if name not in self._programs:
            path = shutil.which(name, path=_search_path(env))
            if path is None:
                return None
            self._programs[name] = path
        return self._programs[name]


def _spawn(
    program: str, argv: Sequence[str], env: dict[str, str], actions: Sequence[tuple[object, ...]]
) -> int:
    try:
        return os.posix_spawn(
            program,
            list(argv),
            env,
            file_actions=actions,
            setsid=True,
            setsigmask=(),
            setsigdef=RESET,
        )
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
    # A script without a shebang line: run by the shell, as usual.
    return _spawn("/bin/sh", ["/bin/sh", program, *argv[1:]], env, actions)


def _writing_to(output: str | Pipes) -> list[tuple[object, ...]]:
    if isinstance(output, Pipes):
        return [(os.POSIX_SPAWN_DUP2, output.out, 1), (os.POSIX_SPAWN_DUP2, output.err, 2)]
    return [(os.POSIX_SPAWN_OPEN, 1, output, WRITE, 0o600), ERRORS_TOO]


def _as_file(text: bytes) -> int:
    """The text as a file in memory, which needs no feeding, unlike a pipe."""
    handle = os.memfd_create("item")
    while text:
        text = text[os.write(handle, text) :]
    os.lseek(handle, 0, os.SEEK_SET)
    return handle


def _search_path(env: Mapping[str, str]) -> str:
    return env.get("PATH", os.defpath)


def not_runnable(name: str, env: Mapping[str, str]) -> Ended:
    """Why a program that was not found cannot be started."""
    named = os.path.dirname(name) and os.path.exists(name)
    if named or shutil.which(name, os.F_OK, _search_path(env)):
        return _failed(NOT_EXECUTABLE, f"{name}: not executable.")
    return _failed(NOT_FOUND, f"command not found: {name}")


def _failed(code: int, error: str) -> Ended:
    return Ended(code, None, 0.0, 0, error=error)
