"""Folders of Markdown task files as items, and the tasks below an epic.

A file is opened for its front matter only, one at a time. Hidden files and folders are left out,
links to folders are not followed. What cannot be read is told and left alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hypervisor.core.errors import InvalidInput
from hypervisor.inputs.items import OnBadItem, TaskItem, checked, printable_path, reporting
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
MOST_PARTS = 10_000  # of one value: what anchors repeat can be endless
LONGEST_VALUE = 10_000


def task_items(paths: Iterable[str], bad: OnBadItem) -> Iterator[TaskItem]:
    """The task files of these paths, those that can be read."""
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
    while waiting:  # no recursion: folders may be nested deeper than calls can be
        path = waiting.pop()
        if not path.endswith("/"):
            if os.path.islink(path) and not _leads_inside(path, folder):
                bad(printable_path(path), "it is a link that leads out of the folder.")
            else:
                yield path
            continue
        try:
            waiting += _entries(path)
        except OSError as error:
            bad(printable_path(path), f"the folder cannot be read: {error.strerror}.")


def read_task(path: str) -> TaskItem:
    """The task file at a path; its columns are what its front matter says."""
    from hypervisor.inputs.task_files.front_matter import LONGEST_FRONT, OPENING, find_front_matter
    from hypervisor.inputs.task_files.markdown import parse

    with open_file(path) as file:
        data = file.read(LONGEST_FRONT + 4096)
        if file.read(1):  # the rest is body
            place = find_front_matter(data) if OPENING.match(data) else None
            data = data[: place.body] if place else b""
    return TaskItem(path, 1, columns_of(path, parse(data).fields))


def columns_of(path: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """What the front matter of a task says, as text and lists of text; the rest is left out."""
    columns = {name: _column(name, fields) for name in COLUMNS}
    return {"path": path, **{name: value for name, value in columns.items() if value}}


def _column(name: str, fields: Mapping[str, Any]) -> str | list[str]:
    value = fields.get(name)
    if name in LISTS:
        parts = value.split(",") if isinstance(value, str) and name != "files" else [value]
        return [text for text in _texts(parts) if text]
    if name == "date":
        dates = (", ".join(_texts(fields.get(each))) for each in DATES)
        return next((date[:LONGEST_VALUE] for date in dates if date), "")
    return " ".join(", ".join(_texts(value)).split())[:LONGEST_VALUE]


def below(epic: str, tasks: Iterable[Mapping[str, Any]]) -> set[str]:
    """The ids that a task's parent may be to belong to the epic: its own, and those below it."""
    children: dict[str, list[str]] = {}
    for columns in tasks:
        if "id" in columns and "parent" in columns:
            children.setdefault(parent_of(columns), []).append(columns["id"])
    found, waiting = {epic}, [epic]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child not in found:
                found.add(child)
                waiting.append(child)
    return found


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
    """What is of interest in a folder, last first; folders end with a slash, so that their
    files are in order among the others."""
    found = []
    with os.scandir(folder or ".") as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                found.append(os.path.join(folder, entry.name, ""))
            elif entry.name.endswith(ENDING) and not _links_to_folder(entry):
                found.append(os.path.join(folder, entry.name))
    return sorted(found, reverse=True)


def _leads_inside(path: str, folder: str) -> bool:
    root = os.path.realpath(folder)
    return os.path.commonpath((root, os.path.realpath(path))) == root


def _links_to_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself; whoever opens it will be told
        return False


def _texts(value: Any) -> list[str]:
    """A value as texts; lists in lists, as [[name]] makes them, are flat."""
    found: list[str] = []
    waiting = [value]
    for _ in range(MOST_PARTS):
        if not waiting:
            break
        value = waiting.pop()
        if isinstance(value, list):
            waiting += reversed(value[:MOST_PARTS])
        elif value is not None:
            found.append(as_text(value).strip())
    return found
