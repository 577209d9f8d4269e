"""Actions: proposed by workers, approved by a person, carried out and undone.

A proposal is untrusted input until it has passed `checked`. A `Step` is one change of one file,
described by the state before and after it, so that it is clear after a crash whether it was made,
and `inverse` undoes it exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput, WrongState
from hypervisor.core.records import NamedTuple
from hypervisor.queue.result import category_of, items_in


class ActionKind(StrEnum):
    MOVE = "move"
    EDIT = "edit"
    WRITE = "write"
    CREATE = "create"
    DELETE = "delete"
    TASK = "task"


class ActionState(StrEnum):
    PLANNED = "planned"
    APPLYING = "applying"
    APPLIED = "applied"
    FAILED = "failed"
    DROPPED = "dropped"
    UNDOING = "undoing"
    UNDONE = "undone"


class StepKind(StrEnum):
    MOVE = "move"
    REPLACE = "replace"
    PLACE = "place"
    REMOVE = "remove"


class Progress(StrEnum):
    """Whether a step was made."""

    NOT_YET = "not yet"
    DONE = "done"
    NEITHER = "neither"  # the file is neither as before nor as after


MOVE, EDIT, WRITE, CREATE, DELETE, TASK = ActionKind
PLANNED, APPLYING, APPLIED, FAILED, DROPPED, UNDOING, UNDONE = ActionState
REPLACE, PLACE, REMOVE = StepKind.REPLACE, StepKind.PLACE, StepKind.REMOVE
NOT_YET, DONE, NEITHER = Progress
UNFINISHED = (PLANNED, APPLYING)
SETTLED = (*UNFINISHED, APPLIED, UNDOING)  # not planned again

MAIL_PARTS = ("cur", "new", "tmp")
MAX_PATH_LENGTH = 4_000
MAX_FIELDS = 100
MAX_ACTIONS = 10_000  # of one task
SHOWN_HASH = 16

_TEXTS: dict[str, tuple[str, ...]] = {
    MOVE: ("path", "to"),
    EDIT: ("path",),
    WRITE: ("path", "text"),
    CREATE: ("path", "text"),
    DELETE: ("path",),
    TASK: ("title",),
}
_OPTIONAL = ("body", "type", "key")


def mail_parts(path: str) -> tuple[str, ...]:
    """The three parts (`.Name/cur` etc.) of the Maildir folder that this path is a part of."""
    folder, _, part = path.rpartition("/")
    if part not in MAIL_PARTS or not folder.rpartition("/")[2].startswith("."):
        return ()
    return tuple(f"{folder}/{name}" for name in MAIL_PARTS)


class PlanChanged(WrongState):
    """The plan is no longer the one that was shown."""


class Changed(InvalidInput):
    """A file is not as it was when the plan was made; it was left alone."""


class Proposals(NamedTuple):
    """The result of a done task that proposes something."""

    task: str
    title: str
    result: Any
    chunk: int = 0


class Step(NamedTuple):
    """One change of one file. Hashes are SHA-256 in hex, empty if the file does not exist."""

    kind: StepKind
    path: str
    to: str = ""
    before: str = ""
    after: str = ""
    mode: int | None = None  # of the resulting file; None: the default for new files
    mode_before: int | None = None
    mtime: int | None = None  # in nanoseconds, of a file that is restored
    owner: tuple[int, int] | None = None  # user and group


class StepStatus(NamedTuple):
    """Whether a step was made, and if neither, what is wrong."""

    how: Progress
    problem: str = ""


class Action(NamedTuple):
    """An approved action, as stored."""

    batch: str
    number: int
    task: str
    kind: str
    data: dict[str, Any]
    state: ActionState
    reason: str | None
    at: int


def checked(proposal: object) -> dict[str, Any]:
    """The known fields of a proposal; InvalidInput says what is wrong."""
    if not isinstance(proposal, dict):
        raise InvalidInput("a proposal must be an object.")
    kind = proposal.get("do")
    if not isinstance(kind, str) or kind not in tuple(ActionKind):
        raise InvalidInput(
            f"unknown action {str(kind)[:60]!r}; use one of {', '.join(ActionKind)}."
        )
    fields: dict[str, Any] = {"do": kind}
    for name in _TEXTS[kind]:
        if name not in proposal:
            raise InvalidInput(f"{name!r} is missing.")
        fields[name] = _CHECKS[name](proposal[name])
    if kind == EDIT:
        lines = _lines(proposal.get("lines"))
        fields["set"] = {} if lines and "set" not in proposal else _fields(proposal.get("set"))
        if lines:
            fields["lines"] = lines
    if kind == TASK:
        fields.update(
            (name, _CHECKS[name](proposal[name]))
            for name in _OPTIONAL
            if proposal.get(name) is not None
        )
    if proposal.get("why") is not None:
        fields["why"] = validate.text("why", proposal["why"])
    return fields


def proposals_of(result: object) -> list[tuple[str, object]]:
    """The unchecked proposals in the result of a task, each with its category. If the task covers
    many items, each of them may have proposals."""
    proposals: list[tuple[str, object]] = []
    for item in (result, *items_in(result)):
        actions = item.get("actions") if isinstance(item, dict) else None
        if actions is not None:
            category = category_of(item)
            proposals += [
                (category, a) for a in (actions if isinstance(actions, list) else [actions])
            ]
    return proposals[:MAX_ACTIONS]


def fingerprint(task: str, index: int, proposal: object) -> str:
    """Identifies a proposal by its task, its position and its content."""
    return digest(task, index, proposal)[:32]


def digest(*values: object) -> str:
    import json
    from hashlib import sha256

    return sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def inverse(step: Step) -> Step:
    """The step that undoes this one."""
    if step.kind == StepKind.MOVE:
        return step._replace(path=step.to, to=step.path)
    kind = {REPLACE: REPLACE, PLACE: REMOVE, REMOVE: PLACE}[step.kind]
    return step._replace(
        kind=kind,
        before=step.after,
        after=step.before,
        mode=step.mode_before,
        mode_before=step.mode,
    )


def status_of_step(step: Step, at_path: str | None, at_target: str | None = "") -> StepStatus:
    """Compare the current hashes at the step's paths with those before and after it. None means
    that it is not a regular file."""
    before, after = (step.before, ""), (step.after, "")
    if step.kind == StepKind.MOVE:
        after = ("", step.before)
    now = (at_path, at_target)
    if now == before:
        return StepStatus(NOT_YET)
    if now == after:
        return StepStatus(DONE)
    return StepStatus(NEITHER, _difference(step, at_path, at_target))


def step_data(step: Step) -> dict[str, Any]:
    return {name: value for name, value in step._asdict().items() if value not in ("", None)}


def step_from(data: Mapping[str, Any]) -> Step:
    fields = dict(data["step"])
    return Step(StepKind(fields.pop("kind")), **fields)


def wording(kind: str, data: Mapping[str, Any]) -> str:
    """Describe an action in one line."""
    proposal = data["proposal"]
    if kind == TASK:
        return visible(f"task “{proposal['title']}”")
    step = data.get("step") or {}
    path = step.get("path", proposal["path"])
    if kind == MOVE:
        return visible(f"move {path} → {step.get('to', proposal['to'])}")
    return visible(f"{kind} {path}")


def evidence(step: Step) -> str:
    """The hashes before and after, for a receipt."""
    short = [digest[:SHOWN_HASH] for digest in (step.before, step.after)]
    if step.kind == StepKind.MOVE:
        return f"sha256 {short[0]}"
    return f"sha256 {short[0] or 'none'} → {short[1] or 'none'}"


def visible(text: str) -> str:
    """The text on one line, with non-printable characters escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _difference(step: Step, at_path: str | None, at_target: str | None) -> str:
    if step.kind == StepKind.MOVE and at_path == step.before:
        return f"{visible(step.to)} already exists"
    if at_path is None:
        return f"{visible(step.path)} is no longer a regular file"
    if not at_path:
        return f"{visible(step.path)} is gone"
    if step.kind == PLACE:
        return f"{visible(step.path)} already exists"
    return f"{visible(step.path)} has changed since"


def _path(value: object) -> str:
    return validate.text("the path", value, MAX_PATH_LENGTH, empty=False)


def _lines(value: object) -> list[str]:
    """Lines added to the body of a task file, unless it already has them."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(
        isinstance(line, str) and line.strip() and line.isprintable() for line in value
    ):
        raise InvalidInput("`lines` must be a list of lines of text.")
    return value


def _fields(value: object) -> dict[str, Any]:
    if not isinstance(value, dict) or not value:
        raise InvalidInput("'set' must be an object of fields and their new values.")
    if len(value) > MAX_FIELDS:
        raise InvalidInput(f"'set' has {len(value)} fields (maximum {MAX_FIELDS}).")
    for name in value:
        validate.label("the field", name)
    validate.json_value("'set'", value)
    return value


_CHECKS: dict[str, Callable[[object], Any]] = {
    "path": _path,
    "to": _path,
    "text": lambda value: validate.text("the text", value),
    "title": validate.title,
    "body": lambda value: validate.text("the body", value),
    "type": lambda value: validate.name("the type", value),
    "key": lambda value: validate.text("the key", value, validate.MAX_KEY_LENGTH, empty=False),
}
