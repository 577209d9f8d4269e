"""The items of a run: read one by one, made into tasks, and found again in them.

Nothing here holds the whole input. A task's key tells its item and how often that was seen
before, so that the same input gives the same keys again, and different ones never share a key.
An item with columns is the same only while its columns are: a changed row is run anew.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import IO, Any

from hypervisor.domain import checks
from hypervisor.domain.errors import InvalidInput
from hypervisor.domain.task import NewTask, Task
from hypervisor.domain.template import Item, as_text
from hypervisor.operations.sources import (
    BLOCK,
    FORMATS,
    bad_line,
    matching_paths,
    read_csv,
    read_json,
    read_lines,
)

Row = tuple[int, str, Mapping[str, Any] | None]  # line, text, columns

SURELY_SMALL = checks.LONGEST_TEXT // 16  # characters: as JSON each takes at most twelve
BEGINNING = 200  # how much of an item is in a key that cannot hold it all
LONGEST_MARK = 100
CANONICAL = json.JSONEncoder(sort_keys=True).encode
MARKED = re.compile(r" #[0-9]+(-[0-9a-f]{32})?\Z")


def read_items(file: IO[bytes], form: str, null: bool = False) -> Iterator[Item]:
    """The items of an open file, one by one; `null`: they end with NUL, not with a line break."""
    if form not in FORMATS:
        raise InvalidInput(f"the format {form!r} is unknown: use one of {', '.join(FORMATS)}.")
    if null and form != "lines":
        raise InvalidInput(f"items that end with NUL are not {form}: use the format lines.")
    if form == "csv":
        return _numbered(_csv_rows(file))
    if form == "jsonl":
        return _numbered(_json_row(n, line) for n, line in read_lines(file))
    return _numbered((n, line, None) for n, line in read_lines(file, null))


def glob_items(pattern: str) -> Iterator[Item]:
    """The files that fit a pattern, sorted; the folders, if the pattern ends with a slash."""
    for number, path in enumerate(matching_paths(pattern), 1):
        item = Item(path, number)
        _check(item)
        yield item


def spooled(file: IO[bytes], folder: str | None = None) -> IO[bytes]:
    """The file itself if it can be read twice; else, as of a pipe, an unnamed copy in `folder`.

    Read it again from where it stood: a seekable file need not stand at its beginning.
    """
    if file.seekable():
        return file
    import shutil
    import tempfile

    copy = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - the caller reads and closes it
    shutil.copyfileobj(file, copy, BLOCK)
    copy.seek(0)
    return copy


def occurrences(items: Iterable[Item]) -> Iterator[tuple[Item, int]]:
    """Each item with 1 when it comes for the first time, 2 for the second, and so on."""
    seen: set[bytes] = set()
    repeated: dict[bytes, int] = {}
    for item in items:
        digest = _digest(item)
        if digest not in seen:
            seen.add(digest)
            yield item, 1
        else:
            repeated[digest] = repeated.get(digest, 1) + 1
            yield item, repeated[digest]


def task_for(item: Item, base: NewTask, occurrence: int = 1) -> NewTask:
    """The task of an item; `base` gives all but its title, key and data."""
    return base._replace(
        title=_title(item.text),
        key=_key(item, occurrence),
        data={**(base.data or {}), **_data(item)},
    )


def item_of(task: Task) -> Item:
    """The item that a task was made for."""
    data = task.data if isinstance(task.data, dict) else {}
    text, number, columns = data.get("item"), data.get("number"), data.get("columns")
    if not isinstance(text, str):
        raise InvalidInput(f"the task {task.id} has no item in its data, so no command fits it.")
    return Item(
        text,
        number if isinstance(number, int) else 1,
        columns if isinstance(columns, dict) else None,
    )


def _numbered(rows: Iterable[Row]) -> Iterator[Item]:
    for number, (line, text, columns) in enumerate(rows, 1):
        item = Item(text, number, columns)
        try:
            _check(item)
        except InvalidInput as error:
            raise bad_line(line, str(error)) from None
        yield item


def _check(item: Item) -> None:
    """Refuse what could not be kept as a task."""
    if not item.text:
        raise InvalidInput("the item is empty.")
    checks.text("the item", item.text)
    if item.columns is not None or len(item.text) > SURELY_SMALL:
        checks.json_value("the item", _data(item))


def _csv_rows(file: IO[bytes]) -> Iterator[Row]:
    for line, header, cells in read_csv(file):
        yield line, cells[0], dict(zip(header, cells, strict=True))


def _json_row(line: int, text: str) -> Row:
    value = read_json(line, text)
    if isinstance(value, str):
        return line, value, None
    if isinstance(value, dict):
        item = value.get("item")
        named = isinstance(item, (str, int, float)) and not isinstance(item, bool)
        return line, as_text(item if named else value), value
    number = text.strip()
    if number.lstrip("-")[0].isdigit():
        return line, number, None
    raise bad_line(line, "expected a JSON object, string or number.")


def _data(item: Item) -> dict[str, Any]:
    data: dict[str, Any] = {"item": item.text, "number": item.number}
    if item.columns is not None:
        data["columns"] = dict(item.columns)
    return data


def _title(text: str) -> str:
    """The text on one line, cut to what a title may be."""
    longest = checks.LONGEST_TITLE
    line = " ".join(text[: longest + 1].split()) or repr(text[: longest // 4])
    return line if len(line) <= longest else line[: longest - 1] + "…"


def _key(item: Item, occurrence: int) -> str:
    """The text itself, if that says it all; a text that looks marked gets a mark of its own."""
    if item.columns is not None or len(item.text) > checks.LONGEST_KEY - LONGEST_MARK:
        return f"{item.text[:BEGINNING]} #{occurrence}-{_digest(item).hex()}"
    if occurrence == 1 and item.text.strip() and not MARKED.search(item.text):
        return item.text
    return f"{item.text} #{occurrence}"


def _digest(item: Item) -> bytes:
    """A hash of the text and the columns; the NUL between them can be in no text."""
    digest = sha256(item.text.encode("utf-8", "surrogatepass"))
    if item.columns is not None:
        digest.update(b"\0" + CANONICAL(item.columns).encode())
    return digest.digest()[:16]
