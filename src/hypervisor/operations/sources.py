"""Reading lines, globs, JSONL and CSV, and making tasks of them.

The readers go line by line, and an error names the line. Tasks are all read
and checked before any is added. A line or a file path becomes the task's key,
so that adding the same list again doubles nothing.
"""

from __future__ import annotations

import glob as globbing
import json
import os
from collections.abc import Iterable, Iterator
from typing import IO, Any

from hypervisor.domain.checks import LONGEST_TEXT
from hypervisor.domain.errors import InvalidInput
from hypervisor.domain.task import NewTask
from hypervisor.operations.add import check_task

FORMATS = ("lines", "jsonl", "csv")
LISTS = ("requires", "exclusive", "after")
FIELDS = frozenset(NewTask._fields)
LONGEST_LINE = 16 << 20  # bytes: what has no line breaks at all shall not fill the memory
BLOCK = 1 << 18


def guess_format(path: str) -> str:
    """The format that a file's name tells."""
    ending = os.path.splitext(path)[1].lower()
    return {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv"}.get(ending, "lines")


def read_tasks(
    file: IO[bytes], form: str, base: NewTask, template: str = "{}", null: bool = False
) -> list[NewTask]:
    """All tasks of an open file; `base` gives what a row leaves out."""
    rows: Iterator[tuple[int, NewTask]]
    if form == "lines":
        rows = ((n, item_task(item, base, template)) for n, item in read_lines(file, null))
    elif form == "jsonl":
        rows = ((n, _from_json(n, line, base)) for n, line in read_lines(file))
    else:
        rows = _from_csv(file, base)
    return list(_checked(rows))


def glob_tasks(pattern: str, base: NewTask, template: str = "{}") -> list[NewTask]:
    """A task for each file whose path fits the pattern (`**` goes into folders), sorted."""
    tasks = (item_task(path, base, template) for path in matching_paths(pattern))
    return list(_checked(enumerate(tasks, 1)))


def item_task(item: str, base: NewTask, template: str) -> NewTask:
    """A task for one item: its key, its data, and its place in the title."""
    data = {**(base.data or {}), "item": item}
    title = template.replace("{}", item) if "{}" in template else f"{template} {item}"
    return base._replace(title=" ".join(title.split()) or item, key=item, data=data)


def _checked(rows: Iterable[tuple[int, NewTask]]) -> Iterator[NewTask]:
    for line, task in rows:
        try:
            yield check_task(task)
        except InvalidInput as error:
            raise bad_line(line, str(error)) from None


def read_lines(file: IO[bytes], null: bool = False) -> Iterator[tuple[int, str]]:
    """Numbered, non-empty lines (or NUL-ended items, which may contain line breaks)."""
    if null:
        for number, raw in enumerate(_nul_ended(file), 1):
            if raw:
                yield number, _decoded(number, raw)
        return
    for number, raw in enumerate(_raw_lines(file), 1):
        line = _decoded(number, raw, "utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        if line.strip():
            yield number, line


def read_json(number: int, line: str) -> Any:
    """The value on a line of JSONL."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise bad_line(number, f"not valid JSON ({error}).") from None


def read_csv(file: IO[bytes]) -> Iterator[tuple[int, list[str], list[str]]]:
    """Each row of CSV: its line, the header, its cells."""
    import csv

    csv.field_size_limit(LONGEST_TEXT + 1)
    reader = csv.reader(_csv_lines(file), strict=True)
    header: list[str] = []
    try:
        for cells in filter(None, reader):
            if not header:
                header = _header(reader.line_num, cells)
            elif len(cells) != len(header):
                raise bad_line(reader.line_num, "its number of cells differs from the header's.")
            else:
                yield reader.line_num, header, cells
    except csv.Error as error:
        raise bad_line(reader.line_num, f"not valid CSV ({error}).") from None


def matching_paths(pattern: str) -> Iterator[str]:
    """The files that fit a pattern, sorted; the folders, if the pattern ends with a slash."""
    paths = sorted(globbing.glob(pattern, recursive=True))
    return filter(os.path.isdir if pattern.endswith("/") else os.path.isfile, paths)


def bad_line(line: int, problem: str) -> InvalidInput:
    return InvalidInput(f"line {line}: {problem} Nothing was added.")


def _raw_lines(file: IO[bytes]) -> Iterator[bytes]:
    while raw := file.readline(LONGEST_LINE + 1):
        yield raw


def _nul_ended(file: IO[bytes]) -> Iterator[bytes]:
    rest = b""
    while len(rest) <= LONGEST_LINE and (block := file.read(BLOCK)):
        *whole, rest = (rest + block).split(b"\0")
        yield from whole
    yield rest


def _csv_lines(file: IO[bytes]) -> Iterator[str]:
    """Lines with their ends, which within quotes are part of a cell; a bare CR is one, too."""
    pieces = (piece for raw in _raw_lines(file) for piece in raw.splitlines(keepends=True))
    for number, piece in enumerate(pieces, 1):
        yield _decoded(number, piece, "utf-8-sig" if number == 1 else "utf-8")


def _decoded(number: int, raw: bytes, encoding: str = "utf-8") -> str:
    if len(raw) > LONGEST_LINE:
        raise bad_line(number, f"too long: at most {LONGEST_LINE:,} bytes.")
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError:
        raise bad_line(number, "not valid UTF-8.") from None


def _header(line: int, names: list[str]) -> list[str]:
    """The names of the columns; only unnamed ones, which no one can ask for, may repeat."""
    seen: set[str] = set()
    for name in filter(None, names):
        if name in seen:
            raise bad_line(line, f"two columns are named {name[:40]!r}.")
        seen.add(name)
    return names


def _from_json(number: int, line: str, base: NewTask) -> NewTask:
    row = read_json(number, line)
    if isinstance(row, str):
        return item_task(row, base, "{}")
    if not isinstance(row, dict):
        raise bad_line(number, "expected a JSON object or string.")
    return _from_row(number, row, base)


def _from_csv(file: IO[bytes], base: NewTask) -> Iterator[tuple[int, NewTask]]:
    for line, header, cells in read_csv(file):
        row = dict(zip(header, cells, strict=True))
        yield line, _from_row(line, _cells(line, row), base)


def _cells(line: int, row: dict[str, str]) -> dict[str, Any]:
    """Cells as field values: lists are separated by `;`, numbers are numbers, empty is absent."""
    values: dict[str, Any] = {}
    for name, cell in row.items():
        if cell == "":
            continue
        if name in LISTS:
            values[name] = [part.strip() for part in cell.split(";") if part.strip()]
        elif name in ("retries", "start_at"):
            try:
                values[name] = int(cell)
            except ValueError:
                raise bad_line(line, f"{name} must be a whole number, not {cell[:40]!r}.") from None
        elif name == "inbox":
            values[name] = cell.strip().lower() in ("1", "true", "yes")
        else:
            values[name] = cell
    return values


def _from_row(line: int, row: dict[str, Any], base: NewTask) -> NewTask:
    """Known columns are the task's fields, all others become its data."""
    known = {name: value for name, value in row.items() if name in FIELDS and value is not None}
    extra = {name: value for name, value in row.items() if name not in FIELDS}
    for name in LISTS:
        if isinstance(known.get(name), str):
            known[name] = [known[name]]
    if extra:
        given = known.get("data", base.data)
        if given is not None and not isinstance(given, dict):
            raise bad_line(line, "data must be an object where there are further columns.")
        known["data"] = {**(given or {}), **extra}
    if "title" not in known:
        named = [row[n] for n in ("item", "path", "name", "key") if isinstance(row.get(n), str)]
        known["title"] = (named or [json.dumps(row, ensure_ascii=False)])[0][:200]
    return base._replace(**known)
