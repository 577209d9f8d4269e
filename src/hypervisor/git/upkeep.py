"""The supervisor's part in git: starts the merger when there is something to merge, to save after
a dead worker, or to tidy up."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hypervisor.queue.sql.settlement import any_submitted

if TYPE_CHECKING:
    from hypervisor.queue.context import Context

LOOK_MS = 300
START_MS = 2_000  # before a merger is started again
CHECK_MS = 2_000  # how often dead workers with an open workspace are looked for
TIDY_MS = 600_000  # how often clones of finished tasks are removed


class Upkeep:
    def __init__(self, hv: Context) -> None:
        self._hv = hv
        self._looked_at = self._started_at = self._checked_at = 0
        self._tidied_at = hv.now()

    def tick(self, now: int) -> None:
        if 0 <= now - self._looked_at < LOOK_MS:
            return
        self._looked_at = now
        if self._has_work(now) and not 0 <= now - self._started_at < START_MS:
            self._started_at = now
            self._hv.launcher.start_merger()

    def _has_work(self, now: int) -> bool:
        if self._hv.store.read(any_submitted) and self._is_ours():
            return True
        if 0 <= now - self._checked_at < CHECK_MS:
            return False
        self._checked_at = now
        if not os.path.isdir(os.path.join(self._hv.places.data, "git", "work")):
            return False
        from hypervisor.git.tidy import left_by_dead

        tidy_again = not 0 <= now - self._tidied_at < TIDY_MS
        self._tidied_at = now if tidy_again else self._tidied_at
        return tidy_again or bool(left_by_dead(self._hv))

    def _is_ours(self) -> bool:
        from hypervisor.git.sql import any_here  # most batches merge nothing

        return self._hv.store.read(any_here, self._hv.probe.host())

    def last_look(self) -> None:
        """It stays as long as something is merging, so nothing is left to do."""
