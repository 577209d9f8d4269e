"""A supervisor that loads its code while its client starts, before the store is known.

This exists for one performance bar: a cold `hv run` (docs/decisions/0029). Client and supervisor
take about as long to start, so they start at the same time. Until it is given a store, the
supervisor has no side effects; if its client ends or does not need it, it ends too.
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

ROLE = "prestarted-supervisor"  # at least as long as its later title
_waiting: tuple[int, int] | None = None  # its process id, and the pipe it reads from


def start() -> None:
    """Start one, which this process should soon need."""
    global _waiting
    stdin, pipe = os.pipe()
    if stdin <= 2:  # one of our standard streams is closed; do not take its place
        os.close(stdin)
        os.close(pipe)
        return
    try:
        pid = spawn(ROLE, env=os.environ, stdin=stdin)
    except OSError:  # reported when a supervisor is needed
        os.close(pipe)
        return
    finally:
        os.close(stdin)
    _waiting = (pid, pipe)
    atexit.register(dismiss)
    os.register_at_fork(after_in_child=_leave_to_parent)


def take(where: str, log: str) -> int | None:
    """Give it a store; returns its process id, None if none is waiting."""
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
    """End it: it is not needed."""
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
    """Safe: it is our child and not collected yet, so its pid cannot be reused."""
    with suppress(ProcessLookupError, ChildProcessError):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def wait(load: Callable[[], None]) -> bool:
    """In the started process: load the code and wait for a store. False if it is not needed."""
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
