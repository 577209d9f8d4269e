"""Background processes: starting one, its streams and its title."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress

LOG_LEVEL = "HV_LOG_LEVEL"  # environment variable
ENTRY_POINT = "from hypervisor.entry_points import serve; serve()"


def spawn(*words: str, env: Mapping[str, str], log: str = os.devnull, stdin: int = -1) -> int:
    """Start a process in its own session; its output goes to `log`. `words` are the arguments of
    `entry_points.serve`."""
    empty = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    return os.posix_spawn(
        sys.executable,
        [sys.executable, "-I", "-c", ENTRY_POINT, *words],
        env,
        file_actions=[
            empty if stdin < 0 else (os.POSIX_SPAWN_DUP2, stdin, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigmask=(),
        setsigdef=(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE),
    )


def redirect_output(log: str) -> None:
    """Append the output of this process to a file."""
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    if handle > 2:
        os.close(handle)


def set_process_title(*words: str) -> None:
    """Set the arguments that `ps` shows for this process, cut to the length of the original."""
    with suppress(OSError, ValueError, IndexError, ImportError), open("/proc/self/stat", "rb") as f:
        import ctypes

        start, end = (int(field) for field in f.read().rpartition(b")")[2].split()[45:47])
        with open("/proc/self/cmdline", "rb") as file:
            whole = file.read()
        if len(whole) != end - start:
            return
        ours = whole.split(b"\0")[:4]  # the interpreter, -I, -c and the program
        text = b"\0".join([*ours, *(word.encode() for word in words)])[: len(whole) - 1]
        ctypes.memmove(start, text.ljust(len(whole), b"\0"), len(whole))


def read_line(handle: int, timeout: float | None = None) -> bytes:
    """Read one line. The writer sends the next one only after an answer."""
    text = b""
    while not text.endswith(b"\n"):
        if not select.select([handle], [], [], timeout)[0]:
            return text
        piece = os.read(handle, 4096)
        if not piece:
            return text
        text += piece
    return text
