"""The results of a batch as rows for a spreadsheet."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from hypervisor.queue.context import Context
from hypervisor.queue.task import Json
from hypervisor.runs.results import TaskResult, results

COLUMNS = ("task", "title", "state", "exit_code", "reason")


def result_rows(hv: Context, batch: str) -> Iterator[list[str]]:
    """The heads of the columns, then a row per task. A result that is an object gets a column for
    each of its members."""
    names, has_others = _members(results(hv, batch))
    yield [*COLUMNS, *(f"result.{name}" for name in names), *(["result"] if has_others else [])]
    for row in results(hv, batch):
        members = row.result if isinstance(row.result, dict) else {}
        cells = [*row[: len(COLUMNS)], *(members.get(name) for name in names)]
        if has_others:
            cells.append(None if isinstance(row.result, dict) else row.result)
        yield [cell_text(cell) for cell in cells]


def _members(rows: Iterable[TaskResult]) -> tuple[list[str], bool]:
    """The names of all members of results that are objects, and whether there are others."""
    names: dict[str, None] = {}
    has_others = False
    for row in rows:
        if isinstance(row.result, dict):
            names.update(dict.fromkeys(row.result))
        else:
            has_others = has_others or row.result is not None
    return list(names), has_others


def cell_text(value: Json) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
