"""A supervisor that loads its code before it is known whether one is needed.

`hv run` takes some time to come up, and so does a supervisor: they do so beside each other. Until
it is told which store to work for, it has touched nothing; if its client ends or has no use for
it, it ends too.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

from hypervisor.runs.processes.fork_server import call_ourselves, line, write_to

ROLE = ("supervisor-to-be", "waiting")  # as long as what it is called later
SERVE = "from hypervisor.app import serve; serve()"
_waiting: tuple[int, int] | None = None  # its process id, and where it listens


def start() -> None:
    """Let one come up. This process should need it at once, or end soon."""
    global _waiting
    listening, telling = os.pipe()
    if listening <= 2:  # a standard stream of ours is closed: it must not be taken for that
        os.close(listening)
        os.close(telling)
        return
    try:
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-c", SERVE, *ROLE],
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, listening, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
            setsigmask=(),
            setsigdef=(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE),
        )
    except OSError:  # whoever needs one will say so
        os.close(telling)
        return
    finally:
        os.close(listening)
    _waiting = (pid, telling)
    atexit.register(dismiss)
    os.register_at_fork(after_in_child=_leave_to_parent)


def take(where: str, log: str) -> int | None:
    """Let it work for a store; its process id, None if there is none that waits."""
    global _waiting
    if _waiting is None:
        return None
    (pid, telling), _waiting = _waiting, None
    try:
        os.write(telling, json.dumps([where, log]).encode() + b"\n")
    except OSError:
        _end(pid)
        return None
    finally:
        os.close(telling)
    return pid


def dismiss() -> None:
    """There is no use for it."""
    global _waiting
    if _waiting is not None:
        (pid, telling), _waiting = _waiting, None
        os.close(telling)
        _end(pid)


def _leave_to_parent() -> None:
    global _waiting
    if _waiting is not None:
        (_, telling), _waiting = _waiting, None
        os.close(telling)


def _end(pid: int) -> None:
    """It is our child and not collected yet: nobody else can have its number."""
    with suppress(ProcessLookupError, ChildProcessError):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def wait(load: Callable[[], None]) -> bool:
    """In the process that was started: load the code, wait for the word. False: there is no use
    for us."""
    load()
    word = line(0)
    if not word.endswith(b"\n"):
        return False
    where, log = json.loads(word)
    os.environ["HYPERVISOR_STORE"] = where
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    write_to(log)
    call_ourselves("supervise", "--detached")
    return True
