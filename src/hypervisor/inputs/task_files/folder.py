"""Folders of Markdown task files as items, and the tasks below an epic.

Of each file, only the front matter is read. Hidden files and folders are skipped, links to folders
are not followed. Unreadable files are reported and skipped.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hypervisor.core.errors import InvalidInput
from hypervisor.inputs.item_names import printable_path
from hypervisor.inputs.items import OnBadItem, TaskItem, checked, reporting
from hypervisor.inputs.sources import open_file
from hypervisor.inputs.template import as_text

COLUMNS = (
    "id",
    "title",
    "type",
    "status",
    "priority",
    "project",
    "depends_on",
    "parent",
    "assignee",
    "complexity",
    "tags",
    "date",
    "files",
)
LISTS = ("depends_on", "tags", "files")
DATES = ("date", "created")
ENDING = ".md"
MAX_PARTS = 10_000  # of one value, which anchors can make endless
MAX_VALUE_LENGTH = 10_000


def task_items(paths: Iterable[str], bad: OnBadItem) -> Iterator[TaskItem]:
    """The readable task files at these paths."""
    for item in checked(_read_all(paths, bad), bad):
        assert isinstance(item, TaskItem)
        yield item


def task_paths(folder: str, bad: OnBadItem) -> Iterator[str]:
    """The paths of all task files below a folder, sorted."""
    root = "" if folder.rstrip("/") == "." else folder
    try:
        waiting = _entries(root)
    except OSError as error:
        raise InvalidInput(f"{printable_path(folder)} cannot be read: {error.strerror}.") from None
    while waiting:  # no recursion: folders can be nested too deeply for that
        path = waiting.pop()
        if not path.endswith("/"):
            if os.path.islink(path) and not _leads_inside(path, folder):
                bad(printable_path(path), "it is a link to a file outside the folder.")
            else:
                yield path
            continue
        try:
            waiting += _entries(path)
        except OSError as error:
            bad(printable_path(path), f"the folder cannot be read: {error.strerror}.")


def read_task(path: str) -> TaskItem:
    """The task file at a path, with its front matter as columns."""
    from hypervisor.inputs.task_files.front_matter import (
        MAX_FRONT_LENGTH,
        OPENING,
        find_front_matter,
    )
    from hypervisor.inputs.task_files.markdown import parse

    with open_file(path) as file:
        data = file.read(MAX_FRONT_LENGTH + 4096)
        if file.read(1):  # the rest is body
            place = find_front_matter(data) if OPENING.match(data) else None
            data = data[: place.body] if place else b""
    return TaskItem(path, 1, columns_of(path, parse(data).fields))


def columns_of(path: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The known fields of front matter, as text and lists of text."""
    columns = {name: _column(name, fields) for name in COLUMNS}
    return {"path": path, **{name: value for name, value in columns.items() if value}}


def _column(name: str, fields: Mapping[str, Any]) -> str | list[str]:
    value = fields.get(name)
    if name in LISTS:
        parts = value.split(",") if isinstance(value, str) and name != "files" else [value]
        return [text for text in _texts(parts) if text]
    if name == "date":
        dates = (", ".join(_texts(fields.get(field))) for field in DATES)
        return next((date[:MAX_VALUE_LENGTH] for date in dates if date), "")
    return " ".join(", ".join(_texts(value)).split())[:MAX_VALUE_LENGTH]


def below(epic: str, tasks: Iterable[Mapping[str, Any]]) -> set[str]:
    """The ids of an epic and of all tasks below it."""
    children: dict[str, list[str]] = {}
    for columns in tasks:
        if "id" in columns and "parent" in columns:
            children.setdefault(parent_of(columns), []).append(columns["id"])
    ids, waiting = {epic}, [epic]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child not in ids:
                ids.add(child)
                waiting.append(child)
    return ids


def parent_of(columns: Mapping[str, Any]) -> str:
    """The id of a task's parent, which may be written as a link: [[id]] or [[id|shown]]."""
    name = str(columns.get("parent", ""))
    if name.startswith("[[") and name.endswith("]]"):
        return name[2:-2].partition("|")[0].strip()
    return name


def _read_all(paths: Iterable[str], bad: OnBadItem) -> Iterator[TaskItem]:
    for path in paths:
        with reporting(path, bad):
            yield read_task(path)


def _entries(folder: str) -> list[str]:
    """The task files and folders in a folder, last first; folders end with a slash, so that their
    files sort correctly among the others."""
    paths = []
    with os.scandir(folder or ".") as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                paths.append(os.path.join(folder, entry.name, ""))
            elif entry.name.endswith(ENDING) and not _links_to_folder(entry):
                paths.append(os.path.join(folder, entry.name))
    return sorted(paths, reverse=True)


def _leads_inside(path: str, folder: str) -> bool:
    root = os.path.realpath(folder)
    return os.path.commonpath((root, os.path.realpath(path))) == root


def _links_to_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself; opening it reports the error
        return False


def _texts(value: Any) -> list[str]:
    """A value as texts; nested lists, such as [[name]], are flattened."""
    texts: list[str] = []
    waiting = [value]
    for _ in range(MAX_PARTS):
        if not waiting:
            break
        value = waiting.pop()
        if isinstance(value, list):
            waiting += reversed(value[:MAX_PARTS])
        elif value is not None:
            texts.append(as_text(value).strip())
    return texts
