"""Keeps the files of chunks up to date while they are worked on.

`chunk-01-summary.json` and `chunk-01-details.md` are made from the store alone,
so whoever comes after a crash writes the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypervisor.operations.chunk_files import write_chunk

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hypervisor.domain.chunk import Chunk
    from hypervisor.operations.context import Context

PAUSE_MS = 1000


class Chronicler:
    def __init__(self, hv: Context) -> None:
        self._hv = hv
        self._written: dict[tuple[str, int], object] = {}
        self._followed: set[str] = set()
        self._looked_at: int | None = None

    def tick(self, now: int, batches: Iterable[str]) -> None:
        """Write what has changed in these batches since the last look, and in earlier ones."""
        self._followed.update(batches)
        if self._looked_at is not None and 0 <= now - self._looked_at < PAUSE_MS:
            return
        self._looked_at = now
        for batch_id in sorted(self._followed):
            batch = None
            for chunk in self._hv.store.chunks(batch_id):
                if self._is_news(chunk):
                    batch = batch or self._hv.store.batch(batch_id)
                    write_chunk(self._hv, batch, chunk, now)

    def _is_news(self, chunk: Chunk) -> bool:
        key, seen = (chunk.batch, chunk.number), (chunk.state, chunk.tasks)
        if chunk.state == "held" or self._written.get(key) == seen:
            return False
        self._written[key] = seen
        return True
