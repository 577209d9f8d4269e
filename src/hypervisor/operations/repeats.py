"""Which items come more than once: found while they pass, without holding them.

Of each only a number is kept that equal items share, a block of them at a time; sorted blocks
wait in an unnamed file. Different items may share a number, too: it says who has to be looked at.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import pairwise
from typing import IO

BLOCK = 1 << 15  # numbers that are held at once
PIECE = 1 << 10  # … and of each block, while all are looked through
BYTES = 8


class Repeats:
    """Notes numbers, and tells those that were noted more than once."""

    def __init__(self) -> None:
        self._now = array("q")
        self._blocks: list[int] = []  # the length of each
        self._file: IO[bytes] | None = None

    def note(self, number: int) -> None:
        self._now.append(number)
        if len(self._now) == BLOCK:
            self._put_away()

    def found(self) -> frozenset[int]:
        """The numbers of all that may have come twice; nothing more can be noted."""
        last = sorted(self._now)
        self._now = array("q")
        starts = [sum(self._blocks[:index]) for index in range(len(self._blocks))]
        blocks = [self._read(at, length) for at, length in zip(starts, self._blocks, strict=True)]
        found = frozenset(one for one, other in pairwise(_merged(last, blocks)) if one == other)
        if self._file is not None:
            self._file.close()
        return found

    def _put_away(self) -> None:
        if self._file is None:
            import tempfile

            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - it is read later
        array("q", sorted(self._now)).tofile(self._file)
        self._blocks.append(len(self._now))
        del self._now[:]

    def _read(self, at: int, length: int) -> Iterator[int]:
        """A block, a piece at a time; others are read between two pieces."""
        assert self._file is not None
        for first in range(at, at + length, PIECE):
            self._file.seek(first * BYTES)
            piece = array("q")
            piece.frombytes(self._file.read(min(PIECE, at + length - first) * BYTES))
            yield from piece


def _merged(last: list[int], blocks: list[Iterator[int]]) -> Iterator[int]:
    if not blocks:
        return iter(last)
    from heapq import merge  # a small input can do without

    return merge(last, *blocks)
