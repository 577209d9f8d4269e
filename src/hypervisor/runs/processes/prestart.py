"""A supervisor that loads its code beside its client, before it is known which store needs one.

It stays for one bar: a cold `hv run` (docs/decisions/0029). Client and supervisor take about as
long to come up, and so they do it at the same time. Until the supervisor is given a store it has
touched nothing; if its client ends or has no use for it, it ends too.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
from collections.abc import Callable
from contextlib import suppress

from hypervisor.runs.processes.daemon import (
    LOG_LEVEL,
    read_line,
    redirect_output,
    set_process_title,
    spawn,
)

ROLE = "prestarted-supervisor"  # as long as its title later
_waiting: tuple[int, int] | None = None  # its process id, and the pipe on which it listens


def start() -> None:
    """Start one. This process should need it at once, or end soon."""
    global _waiting
    stdin, pipe = os.pipe()
    if stdin <= 2:  # a standard stream of ours is closed: it must not be taken for that
        os.close(stdin)
        os.close(pipe)
        return
    try:
        pid = spawn(ROLE, env=os.environ, stdin=stdin)
    except OSError:  # whoever needs one will report it
        os.close(pipe)
        return
    finally:
        os.close(stdin)
    _waiting = (pid, pipe)
    atexit.register(dismiss)
    os.register_at_fork(after_in_child=_leave_to_parent)


def take(where: str, log: str) -> int | None:
    """Let it work for a store; its process id, None if there is none that waits."""
    global _waiting
    if _waiting is None:
        return None
    (pid, pipe), _waiting = _waiting, None
    try:
        order = [where, log, os.environ.get(LOG_LEVEL, "")]
        os.write(pipe, json.dumps(order).encode() + b"\n")
    except OSError:
        _end(pid)
        return None
    finally:
        os.close(pipe)
    return pid


def dismiss() -> None:
    """There is no use for it."""
    global _waiting
    if _waiting is not None:
        (pid, pipe), _waiting = _waiting, None
        os.close(pipe)
        _end(pid)


def _leave_to_parent() -> None:
    global _waiting
    if _waiting is not None:
        (_, pipe), _waiting = _waiting, None
        os.close(pipe)


def _end(pid: int) -> None:
    """It is our child and not collected yet: nobody else can have its number."""
    with suppress(ProcessLookupError, ChildProcessError):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def wait(load: Callable[[], None]) -> bool:
    """In the process that was started: load the code and wait for a store. False: there is no use
    for us."""
    load()
    line = read_line(0)
    if not line.endswith(b"\n"):
        return False
    os.environ["HYPERVISOR_STORE"], log, os.environ[LOG_LEVEL] = json.loads(line)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    redirect_output(log)
    set_process_title("supervise", "--detached")
    return True
