"""The fields of the form for a new run. Each is an option of `hv run`, under the same name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from hypervisor.core.records import NamedTuple
from hypervisor.queue.lane import PRIORITIES
from hypervisor.runs.spec import GATES, MERGE_MODES, PERMISSIONS, WORKSPACES
from hypervisor.skills.folders import FoundSkill

Kind = Literal["command", "function", "agent", "skill"]
KINDS: dict[Kind, str] = {
    "command": "Command",
    "function": "Function",
    "agent": "Agent",
    "skill": "Skill",
}
Shape = Literal["text", "number", "choice", "lines", "flag"]


class Field(NamedTuple):
    name: str
    label: str
    shape: Shape = "text"
    hint: str = ""  # shown while it is empty
    choices: tuple[tuple[str, str], ...] = ()  # values and what they mean; "": not given
    is_path: bool = False

    @property
    def option(self) -> str:
        return f"--{self.name.replace('_', '-')}"


class Group(NamedTuple):
    """Fields under a heading. `is_open`: shown without a click."""

    title: str
    fields: tuple[Field, ...]
    is_open: bool = True


def _choices(values: Sequence[str], meanings: Mapping[str, str], none: str) -> Any:
    named = [(value, meanings.get(value, value)) for value in values if value]
    return (("", none), *named)


MAY = {
    "read-only": "read only",
    "edit": "edit files in the folder",
    "full": "everything, without asking",
}
PERMISSION = _choices(PERMISSIONS, MAY, "edit files in the folder (default)")
PLACES = {
    "project": "in the project itself",
    "scratch": "in a scratch copy; changes become a patch",
    "clone": "in a clone of the repository",
}
PLACE = _choices(WORKSPACES, PLACES, "a clone if it may edit a git repository, else the project")
MERGES = {
    "branch": "into the branch hv/BATCH",
    "local": "into the branch that is checked out",
    "push": "by a push",
    "pr": "as a pull request",
}
MERGE = _choices(MERGE_MODES, MERGES, "no")
GATE = _choices(
    [gate for gate in GATES if gate != "none"],
    {"each": "after every chunk", "first": "after the first chunk"},
    "no",
)
AGAIN = (
    ("", "skip, unless their file or the command has changed"),
    ("again", "run everything again"),
    ("no-changed", "skip"),
)

AGENT = Group(
    "Permissions and model",
    (
        Field("permissions", "It may", "choice", choices=PERMISSION),
        Field("model", "Model", hint="the agent's own"),
        Field("fallback", "Agent to use while it is rate-limited", hint="none"),
        Field("turns", "Turns, at most", "number", "no limit"),
        Field("allow", "Further tools it may use, one per line", "lines"),
    ),
)
BUDGET = Group(
    "Budget",
    (
        Field("budget", "Of the batch, USD", hint="5.00"),
        Field("task_budget", "Of each task, USD", hint="0.50"),
        Field("tokens", "Tokens of the batch", hint="2M"),
        Field("task_tokens", "Tokens of each task", hint="100k"),
    ),
)
GIT = Group(
    "Workspace and merging",
    (
        Field("workspace", "Where an attempt works", "choice", choices=PLACE),
        Field("merge", "Merge finished work", "choice", choices=MERGE),
        Field("target", "Branch to merge into", hint="hv/BATCH, or what is checked out"),
        Field(
            "verify",
            "Commands that must succeed before a merge, one per line",
            "lines",
            "none: nothing is tested before it is merged",
        ),
    ),
    is_open=False,
)
BATCH = Group(
    "Batch",
    (
        Field("name", "Name", hint="from what is run, where, and how"),
        Field("workers", "Workers, at most", "number", "automatic"),
        Field("retries", "Retries of a failed task", "number", "0"),
        Field("timeout", "Time limit of an attempt", hint="90s, 15m, 2h"),
    ),
)
MORE = Group(
    "More options",
    (
        Field("memory", "Memory limit of an attempt", hint="2G"),
        Field("priority", "Priority", "choice", choices=_choices(PRIORITIES, {}, "medium")),
        Field("type", "Type of the tasks", hint="run"),
        Field("branch", "Branch whose findings the agents share", hint="none"),
        Field("chunk_size", "Items per chunk", "number", "one chunk"),
        Field("gate", "Wait for your decision", "choice", choices=GATE),
        Field("rerun", "Items that are already done", "choice", choices=AGAIN),
        Field("fail_fast", "Start nothing more after the first failure", "flag"),
    ),
    is_open=False,
)
COPY = Field("copy", "Work on a copy of the path, kept in", hint="a folder", is_path=True)


def groups(kind: Kind, skill: FoundSkill | None = None) -> tuple[Group, ...]:
    """The optional fields for this kind of run."""
    if kind == "agent":
        return (AGENT, BUDGET, BATCH, GIT, MORE)
    if kind != "skill" or skill is None:
        return (BATCH, GIT, MORE)
    return tuple(_of_skill(group, skill) for group in _groups_of(skill))


def _groups_of(skill: FoundSkill) -> tuple[Group, ...]:
    run, last = skill.skill.run, skill.skill.reduce
    has_agent = run.agent or skill.skill.options.get("prompt") or (last and last.agent)
    agents = (AGENT, BUDGET) if has_agent else ()
    own = BATCH._replace(fields=(*BATCH.fields, COPY))
    return (*agents, own, GIT, MORE)


def _of_skill(group: Group, skill: FoundSkill) -> Group:
    """What the skill sets is the default, and opens the group that has it."""
    said = {**skill.skill.fields, **dict(skill.skill.fields.get("limits") or {})}
    said.pop("name")  # its own, not that of a batch
    fields = tuple(_with_default(field, said) for field in group.fields)
    return group._replace(fields=fields, is_open=group.is_open or fields != group.fields)


def _with_default(field: Field, said: Mapping[str, Any]) -> Field:
    value = said.get(field.name.replace("_", "-"))
    if value is None:
        return field
    shown = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    default = f"{dict(field.choices).get(shown, shown)} (the skill's)"
    return field._replace(hint=default, choices=(("", default), *field.choices[1:]))
