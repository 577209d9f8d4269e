"""Outputs that every host can read: short ones and the ends of others in the database, the rest in
the output store.

An output is readable from anywhere before its task counts as done, so that a later stage on another
host finds it. What cannot be stored elsewhere stays in a file on its host, and readers are told.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from hypervisor.core.errors import StoreError
from hypervisor.core.records import NamedTuple
from hypervisor.runs.outputs import sql
from hypervisor.runs.outputs.segments import SEGMENT, Segment, Segments
from hypervisor.runs.outputs.sql import Kept

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hypervisor.runs.outputs.files import Outputs
    from hypervisor.store.database import Database

TAIL = 64 << 10  # bytes of an output in the database
FRESH = 0.3  # seconds for which an answer of the database is good enough
MAX_PENDING = 200

logger = logging.getLogger("hypervisor.runs")


class Missing(NamedTuple):
    """A part of an output that cannot be read on this host."""

    end: int
    why: str
    is_coming: bool  # it can be read soon

    @property
    def note(self) -> bytes:
        return f"… {self.why} …\n".encode()


class SharedOutputs:
    def __init__(self, store: Database, host: str, url: str = "", keep_each: int = 8 << 20) -> None:
        """`url` names the output store; "": the database has only the ends of outputs."""
        self._store, self.host, self._keep_each = store, host, keep_each
        self.segments = Segments(url) if url else None
        self._pending: list[Kept] = []
        self._others: dict[str, Segments] = {}  # output stores that outputs are in, by URL
        self._known: tuple[tuple[str, int], float, Kept | None] = (("", 0), 0.0, None)
        self._listed: tuple[tuple[str, int, int], list[Segment]] = (("", 0, 0), [])
        self._piece: tuple[str, bytes] = ("", b"")

    # Writing

    def finished(self, local: Outputs, task: str, attempt: int) -> None:
        """Note the output of an attempt that has ended; `publish` stores it."""
        size = local.local_size(task, attempt)
        if size is None:
            return
        now = self._store.now()
        if self.segments is not None and not (size <= TAIL < self._keep_each):
            try:
                sealed = self.seal(local, task, attempt, size)
                place = self.segments.url
                kept = Kept(task, attempt, self.host, place, sealed, sealed, sealed, now, b"")
                return self._add(kept)
            except OSError as error:
                logger.warning("%s; the output stays on this host for now", error)
        start = max(size - TAIL, 0)
        text = local.read_local(task, attempt, start, TAIL) or b""
        place = local.path(task, attempt) if start else ""
        self._add(Kept(task, attempt, self.host, place, start, size, 0, now, text))

    def seal(self, local: Outputs, task: str, attempt: int, upto: int) -> int:
        """Store an output in the output store up to a byte, and return how far it is stored.
        OSError: it could not be."""
        assert self.segments is not None
        sealed = self.segments.of(task, attempt)
        at = sealed[-1].end if sealed else 0
        while at < upto:
            text = local.read_local(task, attempt, at, min(SEGMENT, upto - at))
            if not text:
                break
            at = self.segments.seal(task, attempt, at, text)
        return at

    def _add(self, kept: Kept) -> None:
        self._pending.append(kept)
        if len(self._pending) >= MAX_PENDING:
            self.publish()

    def publish(self) -> None:
        """Store what has been noted. If the database is away, it is stored with the next outputs:
        the results of attempts matter more."""
        if not self._pending:
            return
        try:
            self._store.write_unsynced(sql.save_ends, self._pending)
        except StoreError as error:
            logger.warning("outputs are not readable on other hosts yet: %s", error)
            del self._pending[:-MAX_PENDING]
            return
        self._pending = []

    # Reading

    def kept(self, task: str, attempt: int) -> Kept | None:
        """The output as the database has it."""
        key, known_at, kept = self._known
        if key != (task, attempt) or time.monotonic() - known_at > FRESH:
            kept = self._store.read(sql.get, task, attempt)
            self._known = (task, attempt), time.monotonic(), kept
        return kept

    def size(self, task: str, attempt: int) -> int | None:
        kept = self.kept(task, attempt)
        return None if kept is None else kept.size

    def read(self, task: str, attempt: int, start: int, most: int) -> bytes:
        """A piece of an output. It is shorter where a part is missing, and empty inside of one."""
        kept = self.kept(task, attempt)
        if kept is None:
            return b""
        pieces: list[bytes] = []
        while most > 0 and (piece := self._piece_at(kept, start)[:most]):
            pieces.append(piece)
            start, most = start + len(piece), most - len(piece)
        return b"".join(pieces)

    def missing_part(self, task: str, attempt: int, start: int) -> Missing | None:
        kept = self.kept(task, attempt)
        if kept is None or not kept.sealed <= start < kept.start:
            return None
        count = f"{kept.start - start:,} bytes"
        if "://" in kept.place:
            return Missing(kept.start, f"{count} are not in the output store yet", True)
        where = f"they are on host {kept.host} in {kept.place}"
        hint = "to read all of it anywhere, set `store` under [outputs] in config.toml"
        return Missing(kept.start, f"{count} left out: {where} ({hint})", False)

    def last_parts(self, tasks: Sequence[str]) -> dict[tuple[str, int], bytes]:
        """The ends of the outputs of these tasks."""
        return self._store.read(sql.last_parts, list(tasks)) if tasks else {}

    def host_of(self, task: str, attempt: int) -> str:
        return self._store.read(sql.host_of, task, attempt)

    def _piece_at(self, kept: Kept, at: int) -> bytes:
        if at >= kept.start:
            return kept.text[at - kept.start :]
        if at >= kept.sealed:
            return b""
        for segment in self._segments_of(kept):
            if segment.start <= at < segment.end:
                return self._text_of(kept.place, segment)[at - segment.start :]
        return b""

    def _segments_of(self, kept: Kept) -> list[Segment]:
        key = kept.task, kept.attempt, kept.sealed
        if self._listed[0] != key:
            self._listed = key, self._store_at(kept.place).of(kept.task, kept.attempt)
        return self._listed[1]

    def _text_of(self, place: str, segment: Segment) -> bytes:
        if self._piece[0] != segment.key:
            self._piece = segment.key, self._store_at(place).read(segment)
        return self._piece[1]

    def _store_at(self, url: str) -> Segments:
        """An output stays readable when another output store is configured later."""
        if self.segments is not None and self.segments.url == url:
            return self.segments
        return self._others.setdefault(url, Segments(url))

    # Removing

    def remove(self, outputs: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
        """Remove outputs; returns those that are gone. A part in an output store that cannot be
        reached stays, with its row."""
        wanted = set(outputs)
        tasks = sorted({task for task, _ in wanted})
        at_url: dict[str, list[tuple[str, int]]] = {}
        for task, attempt, place, _ in self._store.read(sql.places, tasks):
            if (task, attempt) in wanted and "://" in place:
                at_url.setdefault(place, []).append((task, attempt))
        for url, there in at_url.items():
            try:
                self._store_at(url).remove(there)
            except OSError as error:
                logger.warning("%s", error)
                wanted.difference_update(there)
        gone = sorted(wanted)
        self._store.write_unsynced(sql.delete, gone)
        return gone

    def remove_all_of(self, tasks: Sequence[str]) -> None:
        """Remove every output of these tasks."""
        found = self._store.read(sql.places, list(tasks)) if tasks else []
        if found:
            self.remove({(task, attempt) for task, attempt, _, _ in found})
