"""Finds items that occur more than once, without holding all of them in memory.

Only a hash of each item is kept; sorted blocks of hashes are stored in an unnamed file. Different
items may share a hash: it only says which ones to compare.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from heapq import merge
from itertools import pairwise
from typing import IO

BLOCK = 1 << 15  # hashes held in memory
PIECE = 1 << 10  # hashes held of each block while the blocks are merged
BYTES = 8


class DuplicateFinder:
    """Collects hashes and finds those that occur more than once."""

    def __init__(self) -> None:
        self._block = array("q")
        self._lengths: list[int] = []  # of the blocks in the file
        self._file: IO[bytes] | None = None

    def add(self, item_hash: int) -> None:
        self._block.append(item_hash)
        if len(self._block) == BLOCK:
            self._write_block()

    def duplicates(self) -> frozenset[int]:
        """The hashes that occur more than once; no more can be added."""
        last = sorted(self._block)
        self._block = array("q")
        starts = [sum(self._lengths[:index]) for index in range(len(self._lengths))]
        blocks = [
            self._read_block(at, length) for at, length in zip(starts, self._lengths, strict=True)
        ]
        hashes = pairwise(merge(last, *blocks))
        repeated = frozenset(item_hash for item_hash, following in hashes if item_hash == following)
        if self._file is not None:
            self._file.close()
        return repeated

    def _write_block(self) -> None:
        if self._file is None:
            import tempfile

            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - it is read later
        array("q", sorted(self._block)).tofile(self._file)
        self._lengths.append(len(self._block))
        del self._block[:]

    def _read_block(self, at: int, length: int) -> Iterator[int]:
        """A block, a piece at a time; other blocks are read in between."""
        assert self._file is not None
        for first in range(at, at + length, PIECE):
            self._file.seek(first * BYTES)
            piece = array("q")
            piece.frombytes(self._file.read(min(PIECE, at + length - first) * BYTES))
            yield from piece
