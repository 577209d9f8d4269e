"""Prompts: Markdown templates with placeholders, filled in for a task.

| placeholder | becomes |
|---|---|
| `{item}` | the item of the task |
| `{title}` | the task's title |
| `{body}` | the task's text |
| `{task}` | the task's id |
| `{note}` | the reviewer's note, if it is being redone, and what people answered |
| `{context}` | context from other work, such as results that it builds on |
| `{scope}` | where the agent may work |
| `{permissions}` | its permissions, in words |
| `{receipts}` | the instruction to leave receipts |
| `{name}` | the item's column of that name |

Any other brace is left as it is. Text from a task is data: a short value is put in backticks,
everything else between two lines with a code that the text does not contain, so that no text can
end its own fence. Inserted text is not searched for placeholders.

The user's template becomes the `{instructions}` of a frame (skills/prompts/), which has the
instructions for every worker.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from hypervisor.core.records import NamedTuple
from hypervisor.inputs.item_names import printable_path
from hypervisor.inputs.template import Item, as_text
from hypervisor.queue.task import Task
from hypervisor.runs.spec import Permissions

MAX_INLINE_LENGTH = 300
MAX_DATA_LENGTH = 400_000  # characters of one value; an agent can open the file of a longer one
PLACEHOLDER = re.compile(r"(?<![{$])\{([A-Za-z_][A-Za-z0-9_-]*)\}(?!\})")
RUN_OF_TICKS = re.compile("`+")
UNSEEN = re.compile("[\u202a-\u202e\u2066-\u2069\u200b-\u200f\u2028\u2029\ufeff]")

INSTRUCTIONS = "Do what the task's own text asks for."
PERMISSIONS: Mapping[Permissions, str] = {
    "read-only": "You may only read: change nothing, and run nothing that makes changes.",
    "edit": "You may change files inside that folder and nothing outside it.",
    "full": "You may run commands, but only for this task.",
}
RECEIPTS = (
    "After each step that changed something or found something out, leave one line of evidence: "
    "what you "
    "did, where, and how you checked it. Write it at once, with `append_receipt` if you have that "
    "tool, else in your report. A line cannot be removed once it is written."
)
PROPOSE = (
    "**Propose, do not act.** Nothing may be changed in this run. Put every change into "
    "`actions` in your report, or propose it with `propose_action`; a person decides."
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
    "**Data.** The result includes data that must match the JSON Schema below. Return it as "
    "`data`: "
    'with `complete_task`, `result` is `{"data": …}`; without that tool, the last message ends '
    'with a JSON object `{"status": "completed", "summary": "…", "data": …}` instead of the line '
    "COMPLETED."
)
NOTE = "A person reviewed an earlier attempt and asks for this, within the rules:"
CONTEXT = "Known from other tasks and attempts:"


class Surroundings(NamedTuple):
    """The parts of a prompt that are not about the task."""

    folder: str = "."  # the working directory, as the agent sees it
    permissions: Permissions = "edit"
    context: str = ""
    messages: str = ""  # of people about the task
    propose: bool = False
    caller: str = ""  # pull: the name it claims under
    pull: int = 1  # pull: maximum number of tasks per session
    schema: str = ""  # JSON Schema for the data of the result


def render(
    template: str,
    task: Task | None,
    item: Item | None,
    around: Surroundings = Surroundings(),  # noqa: B008 (a NamedTuple never changes)
    frame: str = "",
) -> str:
    """The prompt for a task. Without a task (pull), only placeholders about the batch are filled
    in."""
    values = {**_of_task(task, item), **_of_run(around, item)}
    values["note"] = "\n\n".join(filter(None, (values["note"], around.messages)))
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
    """The template with its placeholders filled in. Lines with only empty placeholders are
    dropped."""
    lines: list[str] = []
    for line in template.splitlines():
        placeholders = PLACEHOLDER.findall(line)
        filled_in = [name for name in placeholders if name in values or name in columns]
        filled = PLACEHOLDER.sub(lambda match: _value(match, values, columns), line)
        if filled_in and not filled.strip():
            if lines and not lines[-1].strip():
                lines.pop()
            continue
        lines.append(filled.rstrip() if filled_in else line)
    return "\n".join(lines)


def fenced(text: str, label: str = "") -> str:
    """The text as data, between two lines that it does not contain."""
    text = _clean(text)
    code = _code(text)
    name = f" ({label})" if label else ""
    return f"BEGIN DATA {code}{name}\n{text}\nEND DATA {code}"


def quoted(text: str) -> str:
    """A short text in enough backticks; anything else fenced."""
    if len(text) > MAX_INLINE_LENGTH or not text.isprintable() or not text.strip():
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
        names = ", ".join(quoted(as_text(name)) for name in files[:50])
        scope += f" Change only these files: {names}."
    return scope


def _columns(item: Item | None) -> dict[str, str]:
    columns = item.columns if item is not None and item.columns else {}
    return {name: quoted(as_text(value)) for name, value in columns.items()}


def _data(task: Task | None, item: Item | None, named: set[str]) -> str:
    """The task's data, without what the instructions already contain."""
    if task is None:
        return ""
    parts = [f"Task: `{task.id}`"]
    if "title" not in named:
        parts.append(f"Title: {quoted(task.title)}")
    if item is not None and "item" not in named and printable_path(item.text) != task.title:
        parts.append(f"Item: {quoted(item.text)}")
    if item is not None and item.columns and not named & set(item.columns):
        parts += [f"{quoted(name)}: {value}" for name, value in _columns(item).items()]
    if "body" not in named and task.body.strip():
        parts.append(fenced(task.body, "text"))
    return "\n\n".join(parts)


def _clean(text: str) -> str:
    """The text without control characters and characters that hide or reverse text."""
    text = printable_path(text)
    if len(text) > MAX_DATA_LENGTH:
        left_out = len(text) - MAX_DATA_LENGTH
        text = f"{text[:MAX_DATA_LENGTH]}\n… (cut here: {left_out:,} more characters)"
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    cleaned = "".join(
        c if c.isprintable() or c in "\n\t" else "\ufffd" for c in UNSEEN.sub("", text)
    )
    return cleaned.strip("\n")


def _code(text: str) -> str:
    """A code that the text does not contain, derived from the text."""
    from hashlib import blake2b

    folded = text.casefold()
    number = 0
    while True:
        salted = f"{number}\0{text}".encode("utf-8", "replace")
        code = blake2b(salted, digest_size=5).hexdigest()
        if code not in folded:
            return code
        number += 1
