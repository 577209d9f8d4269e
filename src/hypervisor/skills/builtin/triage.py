"""Triage: reads one Markdown task file, classifies it, and updates its front matter.

It sets the status of closed tasks, estimates complexity, assigns tasks by rules, and links the
project. It never overwrites an assignee or touches another field, and a second run changes nothing.
A file it cannot parse is left alone and reported as `unreadable`, one without front matter as
`not a task`: results about the file, not failures of the run.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from hypervisor.core.errors import InvalidInput, NotFound
from hypervisor.core.places import DATA
from hypervisor.core.store_path import find_upwards
from hypervisor.inputs.task_files import markdown
from hypervisor.inputs.task_files.files import TaskFiles
from hypervisor.skills.builtin.triage_decide import Decision, Fields, Note, decide, read_note
from hypervisor.skills.builtin.triage_rules import Rules, rules_for

UNREADABLE = "unreadable"
NOT_A_TASK = "not a task"
KEPT = "the file was not changed"
LOCKS = "locks"

# For a file that is not a task; a failed write fails the attempt.
NOT_UNDERSTOOD = (FileNotFoundError, InvalidInput, NotFound, ValueError, RecursionError)


class NoFrontMatter(InvalidInput):
    """A Markdown file that is not a task."""


def run(item: Any) -> Fields:
    """Triage one task file: a path, or the columns of a Markdown task. Called by a worker."""
    path = _path(item)
    rules = rules_for(os.getcwd())
    note = read_note(os.environ.get("HV_NOTE", ""))
    try:
        before = _read(path, rules)
        decision = _decide_on(before, path, rules, note)
        proposed = os.environ.get("HV_PROPOSE") == "1"
        actions = _proposals(path, before, decision) if proposed else []
    except (OSError, *NOT_UNDERSTOOD) as error:
        return _unreadable(error, note)
    if proposed or not decision.changes():
        return _result(decision, note, actions=actions)
    if os.environ.get("HV_WRITE_BACK", "none") != "none":
        return _result(decision, note, changed=True) | {"edit": _edit(before, decision)}
    return _carry_out(path, before, decision, rules, note)


def edited(data: bytes, decision: Decision) -> bytes:
    """The file with the decision in it."""
    if decision.fields:
        data = markdown.with_fields(data, decision.fields)
    for link in decision.links:
        data = markdown.with_body_line(data, link)
    return data


def _path(item: Any) -> str:
    path = item.get("path") if isinstance(item, Mapping) else item
    if not isinstance(path, str) or not path or "\0" in path:
        raise InvalidInput(
            "triage needs the path of a Markdown task: text, or columns with a `path`. "
            "Nothing was changed."
        )
    return path


def _read(path: str, rules: Rules) -> bytes:
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise InvalidInput("it is not a file")
    if status.st_size > rules.largest:
        raise InvalidInput(
            f"it is too large for a task: {status.st_size:,} bytes, maximum {rules.largest:,}"
        )
    data = _files().read(path)
    if not data.strip():
        raise InvalidInput("it is empty")
    if b"\0" in data:
        raise InvalidInput("it is binary: it contains a NUL byte")
    return data


def _edit(before: bytes, decision: Decision) -> Fields:
    """The changes for the worker to write into the file, together with the receipt."""
    fields = _parsed(before).fields
    was = {name: fields[name] for name in decision.fields if name in fields}
    return {"set": decision.fields, "was": was, "lines": list(decision.links)}


def _decide_on(data: bytes, path: str, rules: Rules, note: Note) -> Decision:
    document = _parsed(data)
    if not document.has_front:
        raise NoFrontMatter("it has no front matter")
    return decide(document.fields, document.body, path, rules, note)


def _carry_out(path: str, before: bytes, decision: Decision, rules: Rules, note: Note) -> Fields:
    """Edit the file under its lock; if it has changed since it was read, decide again."""
    seen, latest, new = b"", decision, b""
    refused: Exception | None = None

    def edit(data: bytes) -> bytes:
        nonlocal seen, latest, new, refused
        if data != seen:
            try:
                latest = decision if data == before else _decide_on(data, path, rules, note)
                seen, new, refused = data, edited(data, latest), None
            except NOT_UNDERSTOOD as error:
                seen, new, refused = data, data, error
        return new

    try:
        changed = _files().change(path, edit)
    except (FileNotFoundError, InvalidInput, NotFound) as error:
        if os.path.lexists(path):
            raise  # understood, but it cannot be written
        return _unreadable(error, note)
    if refused is not None:
        return _unreadable(refused, note)
    return _result(latest, note, changed=changed)


def _result(
    decision: Decision, note: Note, changed: bool = False, actions: list[Fields] | None = None
) -> Fields:
    done = decision.changes() if changed else {}
    result: Fields = {
        "category": decision.category,
        "rationale": "; ".join(decision.why + note.remarks),
        "changed": done,
        "receipts": [f"triaged: {decision.category}{_listed(done)}"] if done else [],
    }
    if actions:
        result["actions"] = actions
    return result


def _unreadable(error: Exception, note: Note) -> Fields:
    reason = str(error)
    if isinstance(error, OSError):
        reason = error.strerror or type(error).__name__
    why = reason if KEPT in reason.lower() else f"{reason.rstrip('.')}; {KEPT}"
    category = NOT_A_TASK if isinstance(error, NoFrontMatter) else UNREADABLE
    return _result(Decision(category, (why,), {}), note)


def _listed(changes: Fields) -> str:
    """The changes as the end of a receipt's line."""
    fields = {name: value for name, value in changes.items() if name != "links"}
    parts = [f"{name} {value}" if value else f"no {name}" for name, value in fields.items()]
    parts += [f"linked {link.strip('[]')}" for link in changes.get("links", ())]
    return "".join(f", {part}" for part in parts)


@lru_cache(maxsize=1)
def _parsed(data: bytes) -> markdown.Document:
    """Parsed once, to decide and to record the old values; it is not changed."""
    return markdown.parse(data)


def _files() -> TaskFiles:
    """All processes that change files of a run share one folder of locks, set by the worker."""
    return _files_of(os.environ.get("HV_LOCKS") or _own_locks(os.getcwd()))


@lru_cache
def _files_of(locks: str) -> TaskFiles:
    return TaskFiles(locks)


@lru_cache
def _own_locks(folder: str) -> str:
    """Outside of a run: in the .hypervisor folder above, or in the user's cache."""
    data = find_upwards(folder, DATA)
    return os.path.join(data or os.path.expanduser("~/.cache/hypervisor"), LOCKS)


def _proposals(path: str, data: bytes, decision: Decision) -> list[Fields]:
    """One action per file: its fields, and lines of its body."""
    if not decision.changes():
        return []
    edited(data, decision)  # an edit that would fail is not proposed
    action: Fields = {"do": "edit", "path": _in_folder(path), "why": "; ".join(decision.why)}
    action |= {"set": decision.fields} if decision.fields else {}
    return [action | ({"lines": list(decision.links)} if decision.links else {})]


def _in_folder(path: str) -> str:
    """A proposal's path, relative to the run's folder if it is inside."""
    relative = os.path.relpath(path)
    return path if relative.split(os.sep, 1)[0] == os.pardir else relative
