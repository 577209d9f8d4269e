"""Why a person has to look at finished work before it is merged."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from hypervisor.git.clean_text import clean_text
from hypervisor.inputs.items import item_of

if TYPE_CHECKING:
    from hypervisor.git.collect import Collected
    from hypervisor.queue.task import Task

MAX_NAMED = 20


def problem_of(task: Task, collected: Collected) -> str:
    """In one line; "" if there is no problem."""
    outside = outside_scope(task, collected.changed_paths)
    left_out = [str(item) for item in collected.left_out]
    problems = [f"changed files outside its scope: {_some(outside)}"] if outside else []
    if left_out:
        problems.append(f"not in its commits: {_some(left_out)}")
    if collected.large:
        problems.append(f"very large files: {_some(list(collected.large))}")
    return clean_text("; ".join(problems))


def outside_scope(task: Task, paths: tuple[str, ...]) -> list[str]:
    """The changed files that the task does not name, if it names any."""
    data = task.data if isinstance(task.data, dict) else {}
    files = data.get("files")
    if files is None and isinstance(data.get("item"), str):
        files = (item_of(task).columns or {}).get("files")
    if not isinstance(files, list) or not files:
        return []
    scope = [str(name).rstrip("/") for name in files]
    return [path for path in paths if not any(_covers(name, path) for name in scope)]


def _covers(name: str, path: str) -> bool:
    return path == name or path.startswith(f"{name}/") or fnmatchcase(path, name)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more
