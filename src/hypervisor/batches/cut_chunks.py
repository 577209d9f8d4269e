"""Cutting a batch into chunks. An item belongs to the same chunk in every run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any

from hypervisor.batches.chunk import SPANS, UNDATED, span_name
from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput
from hypervisor.core.records import NamedTuple
from hypervisor.core.text import pluralize
from hypervisor.inputs.item_names import text_as_data
from hypervisor.inputs.items import column_text, day_of
from hypervisor.inputs.template import Item
from hypervisor.queue.context import Context
from hypervisor.queue.task import NewTask

DEFAULT_SIZE = 25
MAX_CHUNKS = 10_000
MAX_NAME_LENGTH = 100
MAX_HELD = 1 << 20  # characters


class Cut(NamedTuple):
    """How items are put into chunks: by time, by a column, or by number."""

    span: str | None = None
    field: str | None = None
    size: int | None = None

    def name(self, item: Item) -> str:
        """The name of the item's chunk."""
        if self.span:
            return span_name(self.span, day_of(item))
        if self.field:
            name = " ".join(column_text(item, self.field).split())[:MAX_NAME_LENGTH]
            return name.encode("utf-8", "replace").decode() or "none"
        return str((item.number - 1) // (self.size or DEFAULT_SIZE) + 1)

    def ordered(self, names: Iterable[str]) -> list[str]:
        """The names oldest first, alphabetically, or in the order of the items."""
        if self.field:
            return sorted(names, key=lambda name: (name == "none", name))
        if self.span:
            return sorted(names, key=lambda name: (name == UNDATED, name))
        return sorted(names, key=int)


def check_cut(cut: Cut) -> Cut:
    if sum(part is not None for part in cut) > 1:
        raise InvalidInput("choose one way to cut the batch: by time, by a field or by size.")
    if cut.span is not None and cut.span not in SPANS:
        raise InvalidInput(f"unknown kind of chunk {cut.span!r}: use one of {', '.join(SPANS)}.")
    if cut.size is not None:
        validate.number("the size of a chunk", cut.size, 1, 100_000)
    if cut.field is not None:
        validate.text("the field", cut.field, 200, empty=False)
    return cut


class Numbering:
    """Collects the chunks in a first pass over the items; a second pass gets their positions."""

    def __init__(self, cut: Cut) -> None:
        self._cut = cut
        self._names: set[str] = set()
        self._places: dict[str, int] = {}

    def see(self, item: Item) -> None:
        self._names.add(self._cut.name(item))
        if len(self._names) > MAX_CHUNKS:
            raise InvalidInput(
                f"more than {MAX_CHUNKS:,} chunks: too many to review. Nothing was started."
            )

    @property
    def names(self) -> list[str]:
        return self._cut.ordered(self._names)

    def place(self, item: Item) -> int:
        """Which of `names` the item belongs to, from 1."""
        if not self._places:
            self._places = {name: place for place, name in enumerate(self.names, 1)}
        return self._places.get(self._cut.name(item), 0)


class ChunkLists:
    """One task for each chunk instead of one for each item: the items go into a file with a JSON
    object per line, and the path of that file is the task's item."""

    def __init__(self, hv: Context, batch: str, names: Sequence[str]) -> None:
        self._hv, self._batch, self._names = hv, batch, names
        self._lines: dict[int, list[str]] = {}
        self._held = 0
        self._counts: Counter[int] = Counter()
        self._digests: dict[int, Any] = {}

    def add(self, place: int, item: Item) -> None:
        fields = {**text_as_data(item.text), "columns": item.columns}
        line = json.dumps(fields, ensure_ascii=False) + "\n"
        self._lines.setdefault(place, []).append(line)
        data = line.encode("utf-8", "surrogatepass")
        self._digests.setdefault(place, blake2b(digest_size=8)).update(data)
        self._counts[place] += 1
        self._held += len(line)
        if self._held > MAX_HELD:
            self._write()

    def tasks(self, base: NewTask) -> Iterator[NewTask]:
        """The tasks of the chunks. If the items of a chunk have changed, it is a new task."""
        self._write()
        for place in sorted(self._counts):
            name, count = self._names[place - 1], self._counts[place]
            path = self._hv.batch_files.finish(self._batch, self._file(place))
            columns = {"chunk": name, "count": count, "items": path}
            yield base._replace(
                title=f"{name}: {pluralize(count, 'item')}",
                chunk=place,
                key=f"chunk {name} {self._digests[place].hexdigest()}",
                data={**(base.data or {}), "item": path, "number": place, "columns": columns},
            )

    def _write(self) -> None:
        for place, lines in self._lines.items():
            self._hv.batch_files.append(self._batch, self._file(place), "".join(lines))
        self._lines, self._held = {}, 0

    def _file(self, place: int) -> str:
        mark = blake2b(self._names[place - 1].encode("utf-8", "surrogatepass"), digest_size=4)
        return f"items-{mark.hexdigest()}.jsonl"
