"""Reads lines, globs, JSONL and CSV, and makes tasks of them.

The readers hold no more than one row, and name the line of an error. With a callback for bad lines
they report to it and continue; without one the first bad line is an error.
A line or a file path becomes the task's key, so adding the same list again adds nothing twice.
"""

from __future__ import annotations

import glob as globbing
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any

from hypervisor.core import times
from hypervisor.core.errors import InvalidInput
from hypervisor.core.text import pluralize
from hypervisor.core.validate import MAX_TEXT_LENGTH
from hypervisor.inputs.item_names import printable_path
from hypervisor.queue.add import SimilarTaskChecker
from hypervisor.queue.task import NewTask

TABLES = ("lines", "jsonl", "csv")
FORMATS = (*TABLES, "mbox", "maildir", "tasks")
ENDINGS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".mbox": "mbox"}
LISTS = ("requires", "exclusive", "after")
FIELDS = frozenset(NewTask._fields) - {"chunk"}  # set when a batch is split into chunks
BOOLS = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
MAX_LINE_LENGTH = 16 << 20  # bytes; a file without line breaks must not fill the memory
BLOCK = 1 << 18
SMALL_BLOCK = 1 << 14
LINE_END = re.compile(rb"\r\n|\n|\r")

OnBadLine = Callable[[int, str], None]  # called with the line and the problem


class BadLine(InvalidInput):
    """One line or row cannot be used; the others may be fine."""

    def __init__(self, line: int, problem: str) -> None:
        self.line, self.problem = line, problem
        super().__init__(f"line {line}: {problem} Nothing was added.")


def guess_format(path: str) -> str:
    """The format, by the extension of a file."""
    return ENDINGS.get(os.path.splitext(path)[1].lower(), "lines")


def read_tasks(
    file: IO[bytes],
    form: str,
    base: NewTask,
    template: str = "{}",
    null: bool = False,
    *,
    now: int | None = None,
) -> Iterator[NewTask]:
    """The tasks of an open file; `base` has the defaults for a row. `17:00` in a row is the next
    one after `now`."""
    if form not in TABLES:
        raise InvalidInput(
            f"cannot add tasks from {form}: use {', '.join(TABLES)}, or `hv run --items`."
        )
    now = int(time.time() * 1000) if now is None else now
    rows: Iterator[tuple[int, NewTask]]
    if form == "lines":
        rows = ((n, item_task(item, base, template)) for n, item in read_lines(file, null))
    elif form == "jsonl":
        rows = ((n, _from_json(n, line, base, now)) for n, line in read_lines(file))
    else:
        rows = (
            (n, _from_row(n, _cells(n, dict(zip(header, cells, strict=True))), base, now))
            for n, header, cells in read_csv(file)
        )
    return _checked(rows)


def glob_tasks(pattern: str, base: NewTask, template: str = "{}") -> Iterator[NewTask]:
    """A task for each file whose path matches the pattern (`**` enters folders), sorted."""
    tasks = (item_task(path, base, template) for path in matching_paths(pattern))
    return _checked(enumerate(tasks, 1))


def item_task(item: str, base: NewTask, template: str) -> NewTask:
    """A task for one item: its key, its data, and its place in the title."""
    data = {**(base.data or {}), "item": item}
    title = template.replace("{}", item) if "{}" in template else f"{template} {item}"
    return base._replace(title=" ".join(title.split()) or item, key=item, data=data)


def _checked(rows: Iterable[tuple[int, NewTask]]) -> Iterator[NewTask]:
    check = SimilarTaskChecker().check
    for line, task in rows:
        try:
            checked = check(task)
        except InvalidInput as error:
            raise BadLine(line, str(error)) from None
        yield checked


def read_lines(
    file: IO[bytes], null: bool = False, bad: OnBadLine | None = None, *, names: bool = False
) -> Iterator[tuple[int, str]]:
    """Numbered, non-empty lines (or NUL-ended items, which may contain line breaks).

    `names`: they may name files, whose names need not be UTF-8 (see item_names.py)."""
    errors = "surrogateescape" if names else "strict"
    for number, raw in enumerate(_nul_ended(file) if null else _raw_lines(file), 1):
        encoding = "utf-8-sig" if number == 1 and not null else "utf-8"
        try:
            line = _decoded(number, raw, encoding, errors)
        except BadLine as error:
            report(error, bad)
            continue
        line = line if null else line.rstrip("\r\n")
        if line if null else line.strip():
            yield number, line


def read_json(number: int, line: str) -> Any:
    """The value on a line of JSONL."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadLine(number, f"not valid JSON ({error}).") from None


def read_csv(
    file: IO[bytes], bad: OnBadLine | None = None
) -> Iterator[tuple[int, list[str], list[str]]]:
    """Each row of CSV: its first line, the header, its cells. A bad header is always an error."""
    import csv

    csv.field_size_limit(MAX_TEXT_LENGTH + 1)
    lines = CsvLines(file)
    reader = csv.reader(lines, strict=True)
    header: list[str] = []
    while True:
        lines.begin_row()
        try:
            cells = next(reader, None)
            if cells is None:
                return
            row = _row(lines, header, cells)
        except csv.Error as error:
            problem = BadLine(lines.first, f"not valid CSV ({error}).")
            lines.go_back()
        except BadLine as error:
            problem = error
        else:
            if cells and header:
                yield lines.first, header, row
            header = header or row
            continue
        report(problem, bad if header else None)


def _row(lines: CsvLines, header: list[str], cells: list[str]) -> list[str]:
    if lines.invalid_utf8:
        raise BadLine(lines.invalid_utf8, "not valid UTF-8.")
    if not header:
        return _header(lines.first, cells)
    if cells and len(cells) != len(header):
        found, wanted = pluralize(len(cells), "column"), len(header)
        raise BadLine(lines.first, f"{found} instead of {wanted}, as in the header.")
    return cells


def matching_paths(pattern: str, bad: Callable[[str, str], None] | None = None) -> Iterator[str]:
    """The files that match a pattern, sorted; the folders, if the pattern ends with a slash.

    A link to something that does not exist is reported to `bad`, or refused."""
    is_wanted = os.path.isdir if pattern.endswith("/") else os.path.isfile
    for path in sorted(globbing.glob(pattern, recursive=True)):
        if is_wanted(path):
            yield path
        elif os.path.islink(path) and not os.path.exists(path):
            if bad is None:
                raise InvalidInput(f"{printable_path(path)} is a broken link. Nothing was changed.")
            bad(printable_path(path), "it is a broken link.")


def open_file(path: str) -> IO[bytes]:
    """Open a regular file whose path comes from outside; a pipe is refused without blocking."""
    import stat

    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InvalidInput("it is not a regular file.")
    return open(descriptor, "rb")


def report(error: BadLine, bad: OnBadLine | None) -> None:
    """Report a bad line to the callback, or raise it."""
    if bad is None:
        raise error
    bad(error.line, error.problem)


class CsvLines:
    """The lines for a csv.reader, with their line ends, which are part of a cell inside quotes.

    A quote that is never closed would pull all lines up to the next quote into its row. So after
    an error the reader goes back to the second line of the failed row, within a budget of a few
    times the bytes read so far: even a hostile file takes linear time.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._data, self._row, self._at, self._second = b"", 0, 0, 0
        self._budget = 4 * BLOCK
        self._all_read = self._cut = False
        self.first = 1  # the line that the row begins with
        self.next = 1
        self.invalid_utf8 = 0  # the line of the row that is not UTF-8

    def __iter__(self) -> CsvLines:
        return self

    def begin_row(self) -> None:
        while self._cut:
            self._drop()
        self._row = self._at
        self._second = self.invalid_utf8 = 0
        self.first = self.next

    def go_back(self) -> None:
        cost = self._at - self._second
        if 0 < cost <= self._budget:
            self._budget -= cost
            self._at, self.next = self._second, self.first + 1

    def __next__(self) -> str:
        end = self._line_end()
        if end == self._at:
            raise StopIteration
        raw, self._at = self._data[self._at : end], end
        self._second = self._second or end
        number, self.next = self.next, self.next + 1
        if end - self._row > MAX_LINE_LENGTH:
            self._cut = end == len(self._data) and not raw.endswith(b"\n")
            raise BadLine(self.first, f"too long (maximum {MAX_LINE_LENGTH:,} bytes).")
        try:
            return raw.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError:
            self.invalid_utf8 = self.invalid_utf8 or number
            return raw.decode("utf-8", "replace")

    def _line_end(self) -> int:
        """Where the line ends, even with a bare CR; reads more as needed."""
        while True:
            end = LINE_END.search(self._data, self._at)
            if end and (self._all_read or end[0] != b"\r" or end.end() < len(self._data)):
                return end.end()
            if self._all_read or len(self._data) - self._row > MAX_LINE_LENGTH:
                return len(self._data)
            self._read_on()

    def _read_on(self) -> None:
        row = self._data[self._row :]
        block = self._file.read(max(SMALL_BLOCK, len(row)))  # doubling copies each byte once
        self._at, self._second = self._at - self._row, max(0, self._second - self._row)
        self._data, self._row = row + block, 0
        self._budget += 4 * len(block)
        self._all_read = not block

    def _drop(self) -> None:
        """Skip the rest of a line that is too long, a block at a time."""
        self._data = self._data[-1:]  # a CR may be half of a line end
        self._row = self._at = 0
        self._read_on()
        self._at = len(self._data)
        end = LINE_END.search(self._data)
        self._cut = not self._all_read
        if end and (end[0] != b"\r" or end.end() < len(self._data)):
            self._at, self._cut = end.end(), False


def _raw_lines(file: IO[bytes]) -> Iterator[bytes]:
    """Lines; of one that is too long, only as much as is needed to refuse it."""
    while raw := file.readline(MAX_LINE_LENGTH + 1):
        yield raw
        if len(raw) > MAX_LINE_LENGTH:
            while raw and not raw.endswith(b"\n"):
                raw = file.readline(BLOCK)


def _nul_ended(file: IO[bytes]) -> Iterator[bytes]:
    rest, too_long = b"", False  # too_long: enough of this item was yielded to refuse it
    while block := file.read(BLOCK):
        *whole, rest = (rest + block).split(b"\0")
        for raw in whole:
            if not too_long:
                yield raw
            too_long = False
        if not too_long and len(rest) > MAX_LINE_LENGTH:
            yield rest
            too_long = True
        rest = b"" if too_long else rest
    if not too_long:
        yield rest


def _decoded(number: int, raw: bytes, encoding: str, errors: str) -> str:
    if len(raw) > MAX_LINE_LENGTH:
        raise BadLine(number, f"too long (maximum {MAX_LINE_LENGTH:,} bytes).")
    try:
        return raw.decode(encoding, errors)
    except UnicodeDecodeError:
        raise BadLine(number, "not valid UTF-8.") from None


def _header(line: int, names: list[str]) -> list[str]:
    """The names of the columns; only unnamed columns may repeat."""
    seen: set[str] = set()
    for name in filter(None, names):
        if name in seen:
            raise BadLine(line, f"two columns are named {name[:40]!r}.")
        seen.add(name)
    return names


def _from_json(number: int, line: str, base: NewTask, now: int) -> NewTask:
    row = read_json(number, line)
    if isinstance(row, str):
        return item_task(row, base, "{}")
    if not isinstance(row, dict):
        raise BadLine(number, "expected a JSON object or string.")
    return _from_row(number, row, base, now)


def _cells(line: int, row: dict[str, str]) -> dict[str, Any]:
    """Cells as field values: lists are separated by `;`; empty cells are left out."""
    values: dict[str, Any] = {}
    for name, cell in row.items():
        if cell == "":
            continue
        if name in LISTS:
            values[name] = [part.strip() for part in cell.split(";") if part.strip()]
        elif name == "retries":
            try:
                values[name] = int(cell)
            except ValueError:
                raise BadLine(line, f"{name} must be a whole number, not {cell[:40]!r}.") from None
        elif name == "inbox":
            if (word := cell.strip().lower()) not in BOOLS:
                raise BadLine(line, f"inbox must be yes or no, not {cell[:40]!r}.")
            values[name] = BOOLS[word]
        else:
            values[name] = cell
    return values


def _with_start(line: int, row: dict[str, Any], now: int) -> dict[str, Any]:
    """The row with its start time in milliseconds; the column may be named like the option."""
    if "at" in row:
        if "start_at" in row:
            raise BadLine(line, "give at or start_at, not both.")
        row = {**row, "start_at": row["at"]}
        del row["at"]
    start_at = row.get("start_at")
    if not isinstance(start_at, str):
        return row
    try:
        at = int(start_at) if start_at.strip().isdecimal() else times.moment(start_at, now)
    except InvalidInput as error:
        raise BadLine(line, f"{error}.") from None
    return {**row, "start_at": at}


def _from_row(line: int, row: dict[str, Any], base: NewTask, now: int) -> NewTask:
    """Columns named like a field set that field; all others become the task's data."""
    row = _with_start(line, row, now)
    known = {name: value for name, value in row.items() if name in FIELDS and value is not None}
    extra = {name: value for name, value in row.items() if name not in FIELDS}
    for name in LISTS:
        if isinstance(known.get(name), str):
            known[name] = [known[name]]
    if extra:
        data = known.get("data", base.data)
        if data is not None and not isinstance(data, dict):
            raise BadLine(line, "data must be an object if there are other columns.")
        known["data"] = {**(data or {}), **extra}
    if "title" not in known:
        titles = [row[n] for n in ("item", "path", "name", "key") if isinstance(row.get(n), str)]
        known["title"] = (titles or [json.dumps(row, ensure_ascii=False)])[0][:200]
    return base._replace(**known)
