"""Where the commands of one worker write: into one file after the other's end, over and over.

To make a file costs more than most short commands print. So a command writes into its worker's
spool, and what it printed goes from there into a pack. It gets a file of its own, by a rename
under its hands, when it takes long, when it printed much, or when something of it is still
there to write: nothing may ever get into the output of another.
"""

from __future__ import annotations

import fcntl
import os
import signal
from contextlib import suppress

from hypervisor.runs.outputs.archive import Writer
from hypervisor.runs.outputs.files import Outputs

LONGEST_PACKED = 4096


class Spool(Outputs):
    def __init__(self, data: str, worker: str) -> None:
        super().__init__(data)
        self._worker, self._path = worker, self.spool_of(worker)
        self._pack = Writer(os.path.basename(self._path))
        self._handle = -1
        self._current: tuple[str, int] | None = None
        signal.signal(signal.SIGIO, signal.SIG_IGN)  # what the kernel says to who has a lease

    def prepare(self, task: str, attempt: int) -> str:
        if self._current is not None and os.fstat(self._handle).st_size:
            self._place_or_drop(*self._current)  # nobody told its end: it was called off
        if self._handle < 0 or not os.fstat(self._handle).st_nlink:
            self._begin()
        self._current = task, attempt
        return self._path

    def takes_long(self, task: str, attempt: int) -> None:
        if self._current == (task, attempt):
            with suppress(OSError):  # then it is tried again at its end
                self._place(task, attempt)

    def ended(self, task: str, attempt: int) -> int | None:
        if self._current != (task, attempt):
            return self.size(task, attempt)
        alone, found = self._is_ours_alone(), os.fstat(self._handle)
        fits = found.st_nlink and found.st_size <= LONGEST_PACKED
        if not (alone and fits and self._is_packed(found.st_size)):
            self._place_or_drop(task, attempt)
            return self.size(task, attempt)
        self._current = None
        return found.st_size

    def close(self) -> None:
        self._pack.close()
        self._let_go()
        self.recover(self._worker)

    def _is_packed(self, size: int) -> bool:
        assert self._current is not None
        task, attempt = self._current
        try:
            text = os.pread(self._handle, size, 0) if size else b""
            self._pack.append(self.folder_of(task), task, attempt, text)
            if size:
                self._empty()
        except OSError:  # no room for another copy, or the like
            return False
        return True

    def _begin(self) -> None:
        self._let_go()
        self.make_folder(os.path.dirname(self._path))
        flags = os.O_RDONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self._handle = os.open(self._path, flags, 0o600)

    def _is_ours_alone(self) -> bool:
        """Whether nobody has it open for writing any more: only then is a lease given. Where
        there are no leases, nobody knows, and each output gets its own file."""
        try:
            fcntl.fcntl(self._handle, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except OSError:
            return False
        fcntl.fcntl(self._handle, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        return True

    def _empty(self) -> None:
        """By an open and a close: to a file that was cut, file systems write at the next close
        what they would else keep for later, and this one is empty."""
        os.close(os.open(self._path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC))

    def _place(self, task: str, attempt: int) -> None:
        """Make the spool this attempt's own file; whoever writes into it does not notice."""
        with suppress(FileNotFoundError):  # somebody has removed it
            os.rename(self._path, super().prepare(task, attempt))
        self._let_go()

    def _place_or_drop(self, task: str, attempt: int) -> None:
        """On a full disk there may be no place for it; but that the command ended counts more."""
        try:
            self._place(task, attempt)
        except OSError:
            self._let_go()
            self.recover(self._worker)

    def _let_go(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
        self._handle, self._current = -1, None
