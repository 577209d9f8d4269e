"""Reading a source twice that can be read only once: a pipe, or files that may change."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import IO

from hypervisor.inputs.items import KINDS, OnBadItem, Reader
from hypervisor.inputs.sources import BLOCK
from hypervisor.inputs.template import Item


def seekable(file: IO[bytes], folder: str | None = None) -> IO[bytes]:
    """The file itself if it can be read twice; otherwise an unnamed copy of it in `folder`.

    Read it again from its current position, which may not be its beginning.
    """
    if file.seekable():
        return file
    import shutil
    import tempfile

    copy = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - the caller reads and closes it
    shutil.copyfileobj(file, copy, BLOCK)
    copy.seek(0)
    return copy


class ReadOnce:
    """A source that is read once: the second pass comes from a copy in an unnamed file.

    So both passes see the same items, whatever happens to the files in between, and each is
    parsed once. A pass that is interrupted leaves nothing behind.
    """

    def __init__(self, read: Reader) -> None:
        self._read = read
        self._copy: IO[bytes] | None = None

    def __call__(self, bad: OnBadItem) -> Iterator[Item]:
        return self._first_pass(bad) if self._copy is None else self._second_pass(self._copy, bad)

    def close(self) -> None:
        if self._copy is not None:
            self._copy.close()

    def _first_pass(self, bad: OnBadItem) -> Iterator[Item]:
        import tempfile

        copy = tempfile.TemporaryFile()  # noqa: SIM115 - it is read again later

        def copy_bad(place: str, why: str) -> None:
            copy.write(json.dumps([place, why]).encode() + b"\n")
            bad(place, why)

        try:
            for item in self._read(copy_bad):
                line = [KINDS.index(type(item)), item.text, item.number, item.columns]
                copy.write(json.dumps(line).encode() + b"\n")
                yield item
        except BaseException:
            copy.close()
            raise
        self.close()
        self._copy = copy

    @staticmethod
    def _second_pass(copy: IO[bytes], bad: OnBadItem) -> Iterator[Item]:
        copy.seek(0)
        for line in copy:
            kind, *parts = json.loads(line)
            if isinstance(kind, str):
                bad(kind, *parts)
            else:
                yield KINDS[kind](*parts)
