"""The supervisor's part in keeping order: starts the merger when there is something to merge, to
save after a dead worker, or to tidy up clones; and once a day, a process that deletes what is too
old."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from hypervisor.queue.sql.settlement import any_submitted

if TYPE_CHECKING:
    from hypervisor.queue.context import Context

LOOK_MS = 300
START_MS = 2_000  # before a merger is started again
CHECK_MS = 2_000  # how often dead workers with an open workspace are looked for
EXCHANGE_MS = 10_000  # how often work for other hosts, and of dead ones, is looked for
TIDY_MS = 600_000  # how often clones of finished tasks are removed
CLEAN_MS = 86_400_000  # how often what is too old is deleted
CLEAN_LOOK_MS = 60_000
CLEANED = "cleaned"  # a file whose time says when


class Upkeep:
    def __init__(self, hv: Context) -> None:
        self._hv = hv
        self._looked_at = self._started_at = self._checked_at = self._exchanged_at = 0
        self._tidied_at = self._looked_for_old = hv.now()

    def tick(self, now: int) -> None:
        if 0 <= now - self._looked_at < LOOK_MS:
            return
        self._looked_at = now
        if not 0 <= now - self._looked_for_old < CLEAN_LOOK_MS:
            self._looked_for_old = now
            self._clean(now)
        if self._has_work(now) and not 0 <= now - self._started_at < START_MS:
            self._started_at = now
            self._hv.launcher.start_merger()

    def _has_work(self, now: int) -> bool:
        if self._hv.store.read(any_submitted) and self._is_ours():
            return True
        if 0 <= now - self._checked_at < CHECK_MS:
            return False
        self._checked_at = now
        if self._hv.store.is_shared and self._has_exchange(now):
            return True
        if not os.path.isdir(os.path.join(self._hv.places.data, "git", "work")):
            return False
        from hypervisor.git.tidy import left_by_dead

        tidy_again = not 0 <= now - self._tidied_at < TIDY_MS
        self._tidied_at = now if tidy_again else self._tidied_at
        return tidy_again or bool(left_by_dead(self._hv))

    def _has_exchange(self, now: int) -> bool:
        """Whether work waits to be sent to the host that has the repository, or for this host,
        because the one that did it is gone."""
        if 0 <= now - self._exchanged_at < EXCHANGE_MS:
            return False
        self._exchanged_at = now
        from hypervisor.git.sending import Unsent, has_stranded

        return bool(Unsent(self._hv.places.data).attempts()) or has_stranded(self._hv, now)

    def _is_ours(self) -> bool:
        from hypervisor.git.sql import any_here  # most batches merge nothing

        return self._hv.store.read(any_here, self._hv.probe.host())

    def last_look(self) -> None:
        """It stays as long as something is merging. Most supervisors exit within seconds, so this
        is when old things are noticed."""
        with suppress(OSError):
            self._clean(self._hv.now())

    def _clean(self, now: int) -> None:
        """Delete what is too old, once a day on each host. A new store has nothing old."""
        path = os.path.join(self._hv.places.data, CLEANED)
        try:
            is_due = not 0 <= now - os.stat(path).st_mtime * 1000 < CLEAN_MS
        except FileNotFoundError:
            os.makedirs(self._hv.places.data, mode=0o700, exist_ok=True)
            os.close(os.open(path, os.O_CREAT | os.O_CLOEXEC, 0o600))
            is_due = False
            os.utime(path, (now / 1000, now / 1000))
        if is_due:
            os.utime(path, (now / 1000, now / 1000))  # first: one try a day, even if it fails
            self._hv.launcher.start_cleaner()
