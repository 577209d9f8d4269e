"""The lock file on which SQLite's writers queue, in the order in which they come.

A writer may be stopped while it holds the lock, for example with Ctrl-Z. Others wait for it no
longer than for SQLite's own lock. `flock`, which keeps their order, has no timeout; only a signal
ends it. Where we cannot use signals (in a thread, or in a program that uses them itself), the wait
is unlimited.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading

from hypervisor.core.errors import StoreFull, StoreReadOnly, StoreUnavailable

TRIES_BEFORE_SLEEP = 50
MAX_WAIT = 30  # seconds
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

_waiting_for = ""  # the store for whose lock this process's main thread waits


class WriteLock:
    def __init__(self, path: str) -> None:
        self._path = path
        self._file = -1

    @property
    def handle(self) -> int:
        return self._file

    def open(self) -> None:
        try:
            self._file = os.open(self._path + ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if error.errno in NO_ROOM:
                raise StoreFull(
                    f"no space left for {self._path}.lock. Nothing was changed; "
                    "free some space and try again."
                ) from error
            raise StoreReadOnly(
                f"{self._path}.lock cannot be opened ({error.strerror}). Nothing was changed; "
                "the folder of a store must be writable."
            ) from error

    def take(self) -> None:
        """A write is shorter than going to sleep and waking up: try a few times before waiting."""
        for _ in range(TRIES_BEFORE_SLEEP):
            try:
                return fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.sched_yield()
        try:
            _wait(self._file, self._path)
        except BaseException:
            self.release()  # we may have got it at the same moment
            raise

    def release(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _wait(file: int, path: str) -> None:
    global _waiting_for
    import signal

    handler = signal.getsignal(signal.SIGALRM)
    if (
        threading.current_thread() is not threading.main_thread()
        or handler not in (signal.SIG_DFL, _give_up)
        or signal.getitimer(signal.ITIMER_REAL)[0]
    ):
        return fcntl.flock(file, fcntl.LOCK_EX)
    if handler is not _give_up:
        signal.signal(signal.SIGALRM, _give_up)  # left in place: setting it each time is slow
    _waiting_for = path
    signal.setitimer(signal.ITIMER_REAL, MAX_WAIT)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        _waiting_for = ""


def _give_up(number: int, _frame: object) -> None:
    if not _waiting_for:  # not our alarm: pass the signal on
        import signal

        signal.signal(number, signal.SIG_DFL)
        return signal.raise_signal(number)
    raise StoreUnavailable(
        f"{_waiting_for} is locked: another process has been writing for {MAX_WAIT} s, or was "
        "stopped while writing. Nothing was changed; try again."
    )
