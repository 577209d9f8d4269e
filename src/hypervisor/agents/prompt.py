"""Prompts: Markdown templates with placeholders, filled in for a task.

| placeholder | becomes |
|---|---|
| `{item}` | the item of the task |
| `{title}` | the task's title |
| `{body}` | the task's text |
| `{task}` | the task's id |
| `{note}` | what a person wrote who wants it done again |
| `{context}` | what is known from elsewhere, such as results that it builds on |
| `{scope}` | where the agent may work |
| `{permissions}` | what it may do, in words |
| `{receipts}` | the duty to leave evidence |
| `{name}` | the item's column of that name |

Any other brace stays as it is. What comes from a task is data: a short value is put in
backticks, everything else between two lines with a code that the text does not contain, so that
no text can end its own fence. Nothing that was put in is looked at for placeholders again.

The user's template becomes the `{instructions}` of a frame (skills/prompts/), which carries the
duties of every worker.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from hypervisor.agents.profile import EDIT, FULL, READ_ONLY
from hypervisor.inputs.template import Item, as_text
from hypervisor.queue.task import Task

LONGEST_INLINE = 300
LONGEST_DATA = 400_000  # characters of one value; an agent can open what is longer
PLACEHOLDER = re.compile(r"(?<![{$])\{([A-Za-z_][A-Za-z0-9_-]*)\}(?!\})")
RUN_OF_TICKS = re.compile("`+")
UNSEEN = re.compile("[\u202a-\u202e\u2066-\u2069\u200b-\u200f\u2028\u2029\ufeff]")

INSTRUCTIONS = "Do what the task's own text asks for."
PERMISSIONS = {
    READ_ONLY: "You may read; change nothing and run nothing that changes anything.",
    EDIT: "You may change files inside that folder and nothing outside it.",
    FULL: "You may run commands; use that for this task only.",
}
RECEIPTS = (
    "After each step that changed or found out something, leave one line of evidence: what you "
    "did, where, and how you checked it. Write it at once, with `append_receipt` if you have that "
    "tool, else in your report. A line that is written is never taken back."
)
PROPOSE = (
    "**Propose, do not act.** Nothing may be changed in this run. Put every change into `actions` "
    "of your report or propose it with `propose_action`; a person decides."
)
# In a prompt for all tasks of a run.
OF_ANY_TASK = {
    "task": "the task's id",
    "title": "the task's title",
    "item": "the task's item",
    "body": "the task's text",
    "note": "",
}
SCHEMA = (
    "**Data.** The result has data that must follow the JSON Schema below. Hand it over as `data`: "
    'with `complete_task`, `result` is `{"data": …}`; without that tool, the last message ends '
    'with a JSON object `{"status": "completed", "summary": "…", "data": …}` instead of the line '
    "COMPLETED."
)
NOTE = "A person looked at an earlier attempt and wants this, within the rules:"
CONTEXT = "What is known from elsewhere:"


class Surroundings(NamedTuple):
    """What a prompt says beside the task itself."""

    folder: str = "."  # the working directory, as the agent sees it
    permissions: str = EDIT
    context: str = ""
    propose: bool = False
    caller: str = ""  # pull: the name it claims under
    pull: int = 1  # pull: the most tasks of one run
    schema: str = ""  # JSON Schema that the data of the result must follow


def render(
    template: str,
    task: Task | None,
    item: Item | None,
    around: Surroundings = Surroundings(),  # noqa: B008 (a NamedTuple never changes)
    frame: str = "",
) -> str:
    """The prompt for a task. Without a task (pull) only what is said about the run is put in."""
    values = {**_of_task(task, item), **_of_run(around, item)}
    instructions = fill(template, values, _columns(item)).strip() if template.strip() else ""
    if not frame:
        return instructions
    named = set(PLACEHOLDER.findall(template))
    values["instructions"] = instructions or INSTRUCTIONS
    values["data"] = _data(task, item, named)
    values["schema"] = f"{SCHEMA}\n\n{fenced(around.schema, 'schema')}" if around.schema else ""
    if "note" in named:
        values["note"] = ""
    if "context" in named:
        values["context"] = ""
    return fill(frame, values, {}).strip() + "\n"


def fill(template: str, values: Mapping[str, str], columns: Mapping[str, str]) -> str:
    """The template with its placeholders filled in. A line of nothing but empty ones goes."""
    lines: list[str] = []
    for line in template.splitlines():
        found = PLACEHOLDER.findall(line)
        known = [name for name in found if name in values or name in columns]
        filled = PLACEHOLDER.sub(lambda match: _value(match, values, columns), line)
        if known and not filled.strip():
            if lines and not lines[-1].strip():
                lines.pop()
            continue
        lines.append(filled.rstrip() if known else line)
    return "\n".join(lines)


def fenced(text: str, label: str = "") -> str:
    """Any text as data, between two lines that it cannot contain."""
    text = _clean(text)
    code = _code(text)
    name = f" ({label})" if label else ""
    return f"BEGIN DATA {code}{name}\n{text}\nEND DATA {code}"


def quoted(text: str) -> str:
    """A short text in backticks, more of them than it has in a row; anything else fenced."""
    if len(text) > LONGEST_INLINE or not text.isprintable() or not text.strip():
        return f"\n{fenced(text)}\n" if text else "``"
    longest = max((len(run) for run in RUN_OF_TICKS.findall(text)), default=0)
    ticks = "`" * (longest + 1)
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{space}{text}{space}{ticks}"


def _value(match: re.Match[str], values: Mapping[str, str], columns: Mapping[str, str]) -> str:
    name = match[1]
    if name in values:
        return values[name]
    return columns.get(name, match[0])


def _of_task(task: Task | None, item: Item | None) -> dict[str, str]:
    if task is None:
        return dict(OF_ANY_TASK)
    note = item.note if item is not None else ""
    return {
        "task": task.id,
        "title": quoted(task.title),
        "item": quoted(item.text if item is not None else task.title),
        "body": fenced(task.body, "text") if task.body.strip() else "",
        "note": f"{NOTE}\n\n{fenced(note, 'note')}" if note.strip() else "",
    }


def _of_run(around: Surroundings, item: Item | None) -> dict[str, str]:
    context = around.context.strip()
    return {
        "scope": _scope(around, item),
        "permissions": PERMISSIONS.get(around.permissions, ""),
        "receipts": RECEIPTS,
        "context": f"{CONTEXT}\n\n{fenced(context, 'context')}" if context else "",
        "propose": PROPOSE if around.propose else "",
        "caller": around.caller,
        "pull": str(around.pull),
    }


def _scope(around: Surroundings, item: Item | None) -> str:
    columns = item.columns if item is not None and item.columns else {}
    files = columns.get("files")
    scope = f"Work only in the folder {quoted(around.folder)}."
    if isinstance(files, list) and files:
        names = ", ".join(quoted(as_text(each)) for each in files[:50])
        scope += f" Of its files, change only these: {names}."
    return scope


def _columns(item: Item | None) -> dict[str, str]:
    columns = item.columns if item is not None and item.columns else {}
    return {name: quoted(as_text(value)) for name, value in columns.items()}


def _data(task: Task | None, item: Item | None, named: set[str]) -> str:
    """What the task is about, but for what the instructions have already."""
    if task is None:
        return ""
    parts = [f"Task: `{task.id}`"]
    if "title" not in named:
        parts.append(f"Title: {quoted(task.title)}")
    if item is not None and "item" not in named and item.text != task.title:
        parts.append(f"Item: {quoted(item.text)}")
    if item is not None and item.columns and not named & set(item.columns):
        parts += [f"{quoted(name)}: {value}" for name, value in _columns(item).items()]
    if "body" not in named and task.body.strip():
        parts.append(fenced(task.body, "text"))
    return "\n\n".join(parts)


def _clean(text: str) -> str:
    """What has no place in any text, and what hides text from people or turns it round."""
    if len(text) > LONGEST_DATA:
        text = f"{text[:LONGEST_DATA]}\n… (cut here: {len(text) - LONGEST_DATA:,} more characters)"
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    kept = "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in UNSEEN.sub("", text))
    return kept.strip("\n")


def _code(text: str) -> str:
    """A code that the text does not contain; the same for the same text."""
    from hashlib import blake2b

    folded = text.casefold()
    number = 0
    while True:
        given = f"{number}\0{text}".encode("utf-8", "replace")
        code = blake2b(given, digest_size=5).hexdigest()
        if code not in folded:
            return code
        number += 1
