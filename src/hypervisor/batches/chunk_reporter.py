"""Keeps the files of chunks up to date while they are worked on.

`chunk-01-summary.json` and `chunk-01-details.md` are made from the store alone,
so whoever comes after a crash writes the same.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from hypervisor.batches.chunk_files import write_chunk
from hypervisor.batches.sql import chunks
from hypervisor.core.errors import StoreError
from hypervisor.queue.sql import queries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hypervisor.batches.chunk import Chunk
    from hypervisor.queue.context import Context

PAUSE_MS = 1000
MOST_AT_ONCE = 20  # chunks of a batch: the supervisor has more to do


class ChunkReporter:
    def __init__(self, hv: Context, active_batches: Callable[[], Iterable[str]]) -> None:
        self._hv, self._active_batches = hv, active_batches
        self._written: dict[tuple[str, int], object] = {}
        self._followed: set[str] = set()
        self._looked_at: int | None = None

    def tick(self, now: int) -> None:
        """Write what has changed since the last look in active batches, and in earlier ones."""
        self._followed.update(self._active_batches())
        is_recent = self._looked_at is not None and 0 <= now - self._looked_at < PAUSE_MS
        if is_recent or not self._followed:
            return
        self._looked_at = now
        for batch_id in sorted(self._followed):
            every = self._hv.store.read(chunks.every, batch_id)
            news = [chunk for chunk in every if self._is_news(chunk)][:MOST_AT_ONCE]
            batch = self._hv.store.read(queries.batch, batch_id) if news else None
            for chunk in news:
                assert batch is not None
                with suppress(OSError):  # a full disk must not stop the work
                    write_chunk(self._hv, batch, chunk, every, now)
                self._written[chunk.batch, chunk.number] = (chunk.state, chunk.tasks)

    def last_look(self) -> None:
        """Before the supervisor ends: the files are up to date."""
        self._looked_at = None
        with suppress(StoreError):
            self.tick(self._hv.now())

    def _is_news(self, chunk: Chunk) -> bool:
        seen = (chunk.state, chunk.tasks)
        return chunk.state != "held" and self._written.get((chunk.batch, chunk.number)) != seen
