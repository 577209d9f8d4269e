"""Reading tasks from lines, globs, JSONL and CSV.

Everything is read and checked before anything is added; an error names the
line. A line or a file path becomes the task's key, so that adding the same
list again doubles nothing.
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
        rows = ((n, item_task(item, base, template)) for n, item in _lines(file, null))
    elif form == "jsonl":
        rows = ((n, _from_json(n, line, base)) for n, line in _lines(file, False))
    else:
        rows = _from_csv(file, base)
    return list(_checked(rows))


def glob_tasks(pattern: str, base: NewTask, template: str = "{}") -> list[NewTask]:
    """A task for each file whose path fits the pattern (`**` goes into folders), sorted."""
    paths = sorted(filter(os.path.isfile, globbing.glob(pattern, recursive=True)))
    return list(_checked(enumerate((item_task(p, base, template) for p in paths), 1)))


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
            raise _bad(line, str(error)) from None


def _lines(file: IO[bytes], null: bool) -> Iterator[tuple[int, str]]:
    """Numbered, non-empty lines (or NUL-ended items, which may contain line breaks)."""
    parts: Iterable[bytes] = file.read().split(b"\0") if null else file
    for number, raw in enumerate(parts, 1):
        try:
            line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError:
            raise _bad(number, "not valid UTF-8.") from None
        line = line if null else line.rstrip("\r\n")
        if line.strip():
            yield number, line


def _from_json(number: int, line: str, base: NewTask) -> NewTask:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _bad(number, f"not valid JSON ({error}).") from None
    if isinstance(row, str):
        return item_task(row, base, "{}")
    if not isinstance(row, dict):
        raise _bad(number, "expected a JSON object or string.")
    return _from_row(number, row, base)


def _from_csv(file: IO[bytes], base: NewTask) -> Iterator[tuple[int, NewTask]]:
    import csv
    import io

    csv.field_size_limit(LONGEST_TEXT + 1)
    with io.TextIOWrapper(file, encoding="utf-8-sig", newline="") as text:
        reader = csv.DictReader(text, strict=True)
        try:
            for row in reader:
                if None in row or None in row.values():
                    raise _bad(reader.line_num, "its number of cells differs from the header's.")
                cells = _cells(reader.line_num, row)
                yield reader.line_num, _from_row(reader.line_num, cells, base)
        except UnicodeDecodeError:
            raise _bad(reader.line_num + 1, "not valid UTF-8.") from None
        except csv.Error as error:
            # DictReader counts a line only once it has read it; its reader knows better.
            raise _bad(reader.reader.line_num, f"not valid CSV ({error}).") from None


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
                raise _bad(line, f"{name} must be a whole number, not {cell[:40]!r}.") from None
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
            raise _bad(line, "data must be an object where there are further columns.")
        known["data"] = {**(given or {}), **extra}
    if "title" not in known:
        named = [row[n] for n in ("item", "path", "name", "key") if isinstance(row.get(n), str)]
        known["title"] = (named or [json.dumps(row, ensure_ascii=False)])[0][:200]
    return base._replace(**known)


def _bad(line: int, problem: str) -> InvalidInput:
    return InvalidInput(f"line {line}: {problem} Nothing was added.")
