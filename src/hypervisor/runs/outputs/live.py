"""Lets other hosts read the outputs of attempts that are running here.

A part of the supervisor. The last part of each output goes to the database, at most once a second;
what is longer goes to the output store, in a thread of its own: a slow network must not hold up the
supervisor.
"""

from __future__ import annotations

import logging
import queue
import threading
from typing import TYPE_CHECKING

from hypervisor.core.errors import StoreError
from hypervisor.core.records import NamedTuple
from hypervisor.runs.outputs import sql
from hypervisor.runs.outputs.segments import SEGMENT
from hypervisor.runs.outputs.shared import TAIL, SharedOutputs
from hypervisor.runs.outputs.sql import Kept

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hypervisor.queue.context import Context
    from hypervisor.runs.spec import Running

LOOK_MS = 1_000
SEAL_MS = 10_000  # how long output may stay out of the output store …
SEAL_BYTES = SEGMENT  # … and how much of it
SMALL_TAIL = 16 << 10  # longer tails are written less often: 16 KB a second for each attempt
UPKEEP_MS = 60_000
SILENT_MS = 300_000  # after this the host of a tail has ended
MAX_RETRIED = 20

Key = tuple[str, int]
logger = logging.getLogger("hypervisor.runs")


class Live(NamedTuple):
    """What other hosts know of a running attempt's output."""

    size: int = -1
    written_at: int = 0
    sealed: int = 0
    sealed_at: int = 0
    is_sealing: bool = False


class LiveOutputs:
    """`running` returns the attempts that run on this host."""

    def __init__(
        self, hv: Context, running: Callable[[], Iterable[Running]], keep_each: int = 8 << 20
    ) -> None:
        self._hv, self._running = hv, running
        self._shared: SharedOutputs | None = hv.outputs.shared
        # An output that gets too long is shortened in the middle at its end, and segments never
        # change: only its first half is sealed before.
        self._most = keep_each // 2
        self._live: dict[Key, Live] = {}
        self._jobs: queue.SimpleQueue[tuple[Key, int] | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[tuple[Key, int]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._looked_at = self._kept_at = 0

    def tick(self, now: int) -> None:
        if self._shared is None or 0 <= now - self._looked_at < LOOK_MS:
            return
        self._looked_at = now
        self._note_sealed(now)
        self._look(self._shared, now)
        if not 0 <= now - self._kept_at < UPKEEP_MS:
            self._kept_at = now
            self._upkeep(self._shared, now)

    def last_look(self) -> None:
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join(5)
            self._thread = None

    def _look(self, shared: SharedOutputs, now: int) -> None:
        keys = [(running.task, running.attempt) for running in self._running()]
        tails = [tail for key in keys if (tail := self._tail(shared, key, now)) is not None]
        ended = [key for key in self._live if key not in set(keys)]
        try:
            if tails:
                self._hv.store.write_unsynced(sql.save_tails, tails)
            if ended:
                self._hv.store.write_unsynced(sql.delete_tails, ended)
        except StoreError as error:
            logger.debug("the ends of outputs were not stored", exc_info=error)
            return
        for tail in tails:
            key = tail.task, tail.attempt
            self._live[key] = self._live[key]._replace(size=tail.size, written_at=now)
        for key in ended:
            del self._live[key]

    def _tail(self, shared: SharedOutputs, key: Key, now: int) -> Kept | None:
        """What to write about an output now, if anything; starts to seal it if it is time."""
        size = self._hv.outputs.local_size(*key)
        if size is None:  # not begun
            return None
        live = self._live.setdefault(key, Live(sealed_at=now))
        if shared.segments is not None:
            live = self._seal_if_due(key, live, size, now)
        start = max(size - TAIL, live.sealed if size > TAIL else 0, 0)
        pause = LOOK_MS * max((size - start) // SMALL_TAIL, 1)
        if size == live.size or now - live.written_at < pause:
            return None
        text = self._hv.outputs.read_local(*key, start, TAIL) or b""
        is_sealed = shared.segments is not None and live.sealed > 0
        place = shared.segments.url if is_sealed and shared.segments else ""
        place = place or (self._hv.outputs.path(*key) if start else "")
        return Kept(*key, shared.host, place, start, size, live.sealed, now, text)

    def _seal_if_due(self, key: Key, live: Live, size: int, now: int) -> Live:
        """An output that fits into the database is not sealed."""
        unsealed = min(size, self._most) - live.sealed
        is_due = unsealed >= SEAL_BYTES or now - live.sealed_at >= SEAL_MS
        if size > TAIL and unsealed > 0 and is_due and not live.is_sealing:
            if self._thread is None:
                self._thread = threading.Thread(target=self._seal_all, daemon=True, name="outputs")
                self._thread.start()
            live = live._replace(is_sealing=True)
            self._jobs.put((key, min(size, self._most)))
        self._live[key] = live
        return live

    def _note_sealed(self, now: int) -> None:
        while not self._done.empty():
            key, sealed = self._done.get()
            if (live := self._live.get(key)) is not None:
                # size=-1: the row is written again, with what is sealed now
                self._live[key] = live._replace(
                    sealed=max(sealed, live.sealed), sealed_at=now, is_sealing=False, size=-1
                )

    def _seal_all(self) -> None:
        """The thread."""
        assert self._shared is not None
        while (job := self._jobs.get()) is not None:
            key, upto = job
            sealed = 0
            try:
                sealed = self._shared.seal(self._hv.outputs, *key, upto)
            except OSError as error:
                logger.warning("%s", error)
            self._done.put((key, sealed))

    def _upkeep(self, shared: SharedOutputs, now: int) -> None:
        """Keep the tails of hosts that died; store what could not be stored before."""
        store = self._hv.store
        if store.read(sql.any_tail_before, now - SILENT_MS):
            store.write(sql.keep_tails_before, now - SILENT_MS)
        if shared.segments is None:
            return
        for kept in store.read(sql.incomplete, shared.host, MAX_RETRIED):
            if self._hv.outputs.local_size(kept.task, kept.attempt) is not None:
                shared.finished(self._hv.outputs, kept.task, kept.attempt)
        shared.publish()
