"""The items of a run: read one by one, made into tasks, and read back from them.

Nothing here holds the whole input. A task's key contains its item and how often that item occurred
before, so the same input gives the same keys again, and different items never share a key.
A changed row of a table is a new item. A task file stays the same item whatever its content, and a
mail wherever it is stored.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from typing import IO, Any

from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput
from hypervisor.inputs.item_names import (
    is_name,
    is_utf8,
    printable_path,
    text_as_data,
    text_in_data,
)
from hypervisor.inputs.sources import (
    FORMATS,
    TABLES,
    BadLine,
    OnBadLine,
    matching_paths,
    read_csv,
    read_json,
    read_lines,
    report,
)
from hypervisor.inputs.template import Item, as_text
from hypervisor.queue.task import NewTask, Task

Row = tuple[int, str, Mapping[str, Any] | None]  # line, text, columns
OnBadItem = Callable[[str, str], None]  # called with the place of an unusable item and the reason
Reader = Callable[[OnBadItem], Iterator[Item]]

ALWAYS_SMALL = validate.MAX_TEXT_LENGTH // 16  # a character takes at most twelve bytes of JSON
KEY_PREFIX = 200  # characters of an item that is too long for a key
MAX_MARK_LENGTH = 100
CANONICAL = json.JSONEncoder(sort_keys=True).encode
MARKED = re.compile(r" #[0-9]+(-[0-9a-f]{32})?\Z")
PLACES = ("mailbox", "offset", "path")  # of a mail; they change with other mails
DATES = ("date", "created", "timestamp")
NUMBER = re.compile(r"[0-9]{9,14}(\.[0-9]*)?\Z")  # seconds or milliseconds, from 1973 on
LATEST = 10**11  # seconds: the year 5138; larger numbers are milliseconds
MONTH = re.compile(r"[0-9]{4}-[0-9]{2}\Z")
ALIASES = {"sender": "from"}


class TaskItem(Item):
    """A Markdown task file, identified by its path: a run changes the columns itself."""

    __slots__ = ()


class MailItem(Item):
    """A mail, wherever it is stored."""

    __slots__ = ()

    @property
    def title(self) -> str:
        from email.utils import parseaddr

        columns = self.columns or {}
        sender = str(columns.get("from", ""))
        sender = next(filter(None, parseaddr(sender)), sender)
        subject = str(columns.get("subject", "")) or ("no subject" if sender else "")
        return f"{subject} ({sender})" if sender else subject


KINDS = (Item, TaskItem, MailItem)


def read_items(
    file: IO[bytes], form: str, null: bool = False, bad: OnBadItem | None = None, name: str = ""
) -> Iterator[Item]:
    """The items of an open file, one by one; `null`: they end with NUL, not with a line break.

    `bad` is called for each unusable row, with its place (`name`, line 7) and the reason; without
    it, the first such row is an error. A broken header always is.
    """
    if form not in FORMATS:
        raise InvalidInput(f"unknown format {form!r}: use one of {', '.join(FORMATS)}.")
    if null and form != "lines":
        raise InvalidInput(f"items that end with NUL are not {form}: use the format lines.")
    if form == "mbox":
        from hypervisor.inputs.mail import mbox_items

        return mbox_items(file, name)
    if form not in TABLES:
        raise InvalidInput(f"the format {form} needs a folder.")
    bad_row = None if bad is None else _by_line(bad, name)
    if form == "csv":
        csv = read_csv(file, bad_row)
        rows = ((n, cells[0], dict(zip(header, cells, strict=True))) for n, header, cells in csv)
        return _numbered(rows, bad_row)
    if form == "jsonl":
        return _numbered(_json_rows(file, bad_row), bad_row)
    lines = read_lines(file, null, bad_row, names=True)
    return _numbered(((n, line, None) for n, line in lines), bad_row)


def glob_items(pattern: str, bad: OnBadItem | None = None) -> Iterator[Item]:
    """The files that match a pattern, sorted; the folders, if the pattern ends with a slash."""
    return checked((Item(path) for path in matching_paths(pattern, bad)), bad)


def checked(items: Iterable[Item], bad: OnBadItem | None = None) -> Iterator[Item]:
    """The items that can become tasks, numbered."""
    number = 1
    for item in items:
        try:
            _check(item)
        except InvalidInput as error:
            if bad is None:
                raise
            bad(printable_path(item.text), str(error))
            continue
        yield item._replace(number=number)
        number += 1


@contextmanager
def reporting(path: str, bad: OnBadItem) -> Iterator[None]:
    """Report a file that cannot be read instead of raising."""
    try:
        yield
    except OSError as error:
        bad(printable_path(path), f"it cannot be read: {error.strerror}.")
    except (InvalidInput, ValueError) as error:
        bad(printable_path(path), str(error))


def day_of(item: Item) -> str | None:
    """The day of an item, as 2026-11-16: from its columns, else from its file's time."""
    for name in DATES:
        if day := _day((item.columns or {}).get(name)):
            return day
    import stat

    try:
        status = os.stat(item.text)
    except (OSError, ValueError):
        return None
    return _day(status.st_mtime) if stat.S_ISREG(status.st_mode) else None


def item_from_value(value: Any, number: int = 1) -> Item:
    """The item for a Python value: a text, a path, a row, or anything else that JSON can hold."""
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, bytes):
        value = os.fsdecode(value)
    if isinstance(value, str):
        item = Item(value, number)
    else:
        text = as_text(validate.json_value("the item", value))
        is_row = isinstance(value, dict)
        item = Item(text, number, value) if is_row else Item(text, number, other=(value,))
    _check(item)
    return item


def column_text(item: Item, name: str) -> str:
    """A column as text: lists joined by commas, "" if it is missing."""
    columns = item.columns or {}
    value = columns.get(name, columns.get(ALIASES.get(name, name)))
    if value is None:
        return ""
    if isinstance(value, (list, tuple)):
        return ", ".join(as_text(part) for part in value if part is not None)
    return as_text(value)


def occurrences(
    items: Iterable[Item], repeated: Collection[int] | None = None
) -> Iterator[tuple[Item, int]]:
    """Each item with 1 for its first occurrence, 2 for the second, and so on.

    `repeated` holds the hashes of all items that may occur more than once; None: any may."""
    seen: dict[bytes, int] = {}
    for item in items:
        if repeated is not None and (not repeated or item_hash(item) not in repeated):
            yield item, 1
            continue
        digest = _digest(item)
        times = seen[digest] = seen.get(digest, 0) + 1
        yield item, times


def item_hash(item: Item) -> int:
    """A hash, the same for equal items within this process; different ones rarely share it."""
    identity = _identity(item)
    return hash(item.text if identity is None else (item.text, CANONICAL(identity)))


def task_for(item: Item, base: NewTask, occurrence: int = 1) -> NewTask:
    """The task for an item; `base` provides all but its title, key and data."""
    return base._replace(
        title=_title(item.title or item.text),
        key=_key(item, occurrence),
        data={**(base.data or {}), **_data(item)},
    )


def item_of(task: Task) -> Item:
    """The item that a task was made for."""
    data = task.data if isinstance(task.data, dict) else {}
    text, number, note = text_in_data(data), data.get("number"), data.get("note")
    columns = data.get("columns")
    if text is None:
        raise InvalidInput(
            f"the task {task.id} has no item in its data, so no command can run for it."
        )
    if isinstance(columns, dict) and text != data["item"] == columns.get("path"):
        columns = {**columns, "path": text}
    return Item(
        text,
        number if isinstance(number, int) else 1,
        columns if isinstance(columns, dict) else None,
        note if isinstance(note, str) else "",
        (data["value"],) if "value" in data else (),
    )


def _by_line(bad: OnBadItem, name: str) -> OnBadLine:
    """Reports a line with the name of its file."""
    file = f"{printable_path(name)}, " if name else ""
    return lambda line, why: bad(f"{file}line {line}", why)


def _numbered(rows: Iterable[Row], bad: OnBadLine | None) -> Iterator[Item]:
    number = 1
    for line, text, columns in rows:
        item = Item(text, number, columns)
        try:
            _check(item)
        except InvalidInput as error:
            report(BadLine(line, str(error)), bad)
            continue
        yield item
        number += 1


def _check(item: Item) -> None:
    """Refuse an item that cannot become a task."""
    if not item.text:
        raise InvalidInput("the item is empty.")
    may_be_raw = is_name(item.text) and not isinstance(item, MailItem)
    validate.text("the item", printable_path(item.text) if may_be_raw else item.text)
    if item.columns is not None or item.other or len(item.text) > ALWAYS_SMALL:
        validate.json_value("the item", _data(item))


def _json_rows(file: IO[bytes], bad: OnBadLine | None) -> Iterator[Row]:
    for line, text in read_lines(file, bad=bad):
        try:
            row = _json_row(line, text)
        except BadLine as error:
            report(error, bad)
        else:
            yield row


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
    raise BadLine(line, "expected a JSON object, string or number.")


def _data(item: Item) -> dict[str, Any]:
    data: dict[str, Any] = {**text_as_data(item.text), "number": item.number}
    if item.columns is not None:
        data["columns"] = dict(item.columns)
        if item.columns.get("path") == item.text:
            data["columns"]["path"] = data["item"]
    if item.other:
        data["value"] = item.value
    return data


def _title(text: str) -> str:
    """The text on one line, cut to the longest title."""
    text, limit = printable_path(text), validate.MAX_TITLE_LENGTH
    line = " ".join(text[: limit + 1].split()) or repr(text[: limit // 4])
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _key(item: Item, occurrence: int) -> str:
    """The text itself if it identifies the item; otherwise, or if it looks marked, with a mark."""
    is_short = len(item.text) <= validate.MAX_KEY_LENGTH - MAX_MARK_LENGTH
    if _identity(item) is not None or not is_short or not is_utf8(item.text):
        return f"{printable_path(item.text)[:KEY_PREFIX]} #{occurrence}-{_digest(item).hex()}"
    text = item.text
    if occurrence == 1 and text.strip() and not (" #" in text and MARKED.search(text)):
        return text
    return f"{text} #{occurrence}"


def _digest(item: Item) -> bytes:
    """A hash of the text and the identifying columns, separated by a NUL, which no text has."""
    digest = sha256(item.text.encode("utf-8", "surrogatepass"))
    identity = _identity(item)
    if identity is not None:
        digest.update(b"\0" + CANONICAL(identity).encode())
    return digest.digest()[:16]


def _identity(item: Item) -> Mapping[str, Any] | None:
    """The columns that identify an item along with its text."""
    if item.other:
        return {"value": item.value}
    if isinstance(item, TaskItem) or item.columns is None:
        return None
    if isinstance(item, MailItem):
        return {name: value for name, value in item.columns.items() if name not in PLACES}
    return item.columns


def _day(value: object) -> str | None:
    """The day of a date, in its own time zone; of seconds since 1970, in UTC."""
    from datetime import UTC, datetime

    text = as_text(value).strip() if isinstance(value, (str, int, float)) else ""
    try:
        if NUMBER.match(text):
            seconds = float(text)
            seconds = seconds / 1000 if seconds > LATEST else seconds
            return datetime.fromtimestamp(seconds, UTC).date().isoformat()
        text = f"{text}-01" if MONTH.match(text) else text
        return datetime.fromisoformat(text).date().isoformat()
    except (ValueError, OverflowError, OSError):
        return _day_of_mail(text)


def _day_of_mail(text: str) -> str | None:
    from email.utils import parsedate_to_datetime

    try:
        return parsedate_to_datetime(text).date().isoformat() if text else None
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
