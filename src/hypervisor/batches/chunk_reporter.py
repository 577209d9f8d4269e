"""Keeps the files of chunks up to date while their tasks run.

`chunk-01-summary.json` and `chunk-01-details.md` are made from the store alone, so after a crash
the same files are written again.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from hypervisor.batches.sql import chunks
from hypervisor.core.errors import StoreError
from hypervisor.queue.sql import queries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from hypervisor.batches.chunk import Chunk
    from hypervisor.queue.context import Context

PAUSE_MS = 1000
MAX_CONCURRENT = 20  # chunks of a batch per tick: the supervisor has other work


class ChunkReporter:
    def __init__(self, hv: Context, active_batches: Callable[[], Iterable[str]]) -> None:
        self._hv, self._active_batches = hv, active_batches
        self._written: dict[tuple[str, int], object] = {}
        self._followed: set[str] = set()
        self._looked_at: int | None = None

    def tick(self, now: int) -> None:
        """Write the chunks that have changed since the last tick, in batches active so far."""
        self._followed.update(self._active_batches())
        is_recent = self._looked_at is not None and 0 <= now - self._looked_at < PAUSE_MS
        if is_recent or not self._followed:
            return
        self._looked_at = now
        for batch_id in sorted(self._followed):
            every = self._hv.store.read(chunks.every, batch_id)
            news = [chunk for chunk in every if self._is_news(chunk)][:MAX_CONCURRENT]
            if news:
                self._write(batch_id, news, every, now)

    def _write(
        self, batch_id: str, news: Sequence[Chunk], every: Sequence[Chunk], now: int
    ) -> None:
        from hypervisor.batches.chunk_files import write_chunk  # most batches have no chunks

        batch = self._hv.store.read(queries.batch, batch_id)
        for chunk in news:
            with suppress(OSError):  # a full disk must not stop the work
                write_chunk(self._hv, batch, chunk, every, now)
            self._written[chunk.batch, chunk.number] = (chunk.state, chunk.tasks)

    def last_look(self) -> None:
        """Before the supervisor exits: bring the files up to date."""
        self._looked_at = None
        with suppress(StoreError):
            self.tick(self._hv.now())

    def _is_news(self, chunk: Chunk) -> bool:
        current = (chunk.state, chunk.tasks)
        return chunk.state != "held" and self._written.get((chunk.batch, chunk.number)) != current
