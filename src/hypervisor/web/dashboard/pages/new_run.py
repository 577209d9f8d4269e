"""New run: a command, function, agent or skill over items, checked before it starts.

The form becomes the words of `hv run`. Checking asks `hv preflight` and `hv run --dry-run`;
starting is `hv run --detach`. There is no other way to start a run from here.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from markupsafe import escape

from hypervisor.agents.agents import agents
from hypervisor.core.errors import HypervisorError
from hypervisor.queue.context import Context
from hypervisor.skills.folders import FoundSkill, all_skills, places
from hypervisor.web.dashboard.own_commands import run_hv
from hypervisor.web.dashboard.page import Action, Answer, Page, Request, Values
from hypervisor.web.dashboard.run_command import RunCommand, command_of, kind_of, skill_of
from hypervisor.web.dashboard.run_fields import KINDS, groups

OWN_FIELDS = ("name", "description")  # shown elsewhere
MAX_COMMANDS = 5


def form(hv: Context, request: Request) -> Values:
    folder = _folder(hv, request)
    kind, skill = kind_of(request.query), skill_of(request.query, folder)
    is_ready = kind != "skill" or skill is not None
    return {
        "kind": kind,
        "kinds": KINDS,
        "folder": folder,
        # Markup, or line breaks would be shown as their codes.
        "given": {name: escape(value) for name, value in request.query.items()},
        "groups": groups(kind, skill) if is_ready else (),
        "agents": agents(hv) if kind == "agent" or (skill and _may_use_agent(skill)) else (),
        "skill": skill,
        "facts": _facts(skill) if skill else {},
        **(_skills(folder) if kind == "skill" else {}),
    }


def check(hv: Context, request: Request) -> Answer:
    folder = _folder(hv, request)
    try:
        command = command_of(request.form, folder)
        found, first, notes = _asked(hv, command, folder)
    except HypervisorError as error:
        return Answer("new_run/checked", {"problem": str(error)})
    return Answer(
        "new_run/checked",
        {
            "problem": "",
            "found": found,
            "first": first,
            "notes": notes,
            "shell": command.shell(),
            "kept": {name: escape(value) for name, value in request.form.items()},
        },
    )


def start(hv: Context, request: Request) -> str | Answer:
    folder = _folder(hv, request)
    command = command_of(request.form, folder)
    answer, _ = run_hv(hv, command.arguments("run", "--detach", "--json"), folder, command.stdin)
    if "id" not in answer:
        return "no items; nothing was started"
    return Answer(go=f"/batches/{answer['id']}")


def _asked(
    hv: Context, command: RunCommand, folder: str
) -> tuple[dict[str, Any], dict[str, Any], tuple[str, ...]]:
    """The preflight, what would be run first, and what the commands noted."""
    verbs = (("run", "--dry-run", "--json"), ("preflight", "--json"))
    with ThreadPoolExecutor(len(verbs)) as pool:
        pending = [
            pool.submit(run_hv, hv, command.arguments(*verb), folder, command.stdin)
            for verb in verbs
        ]
        first, found = (each.result() for each in pending)
    if commands := first.values.get("commands"):
        first.values["commands"] = commands[:MAX_COMMANDS]
    return found.values, first.values, first.notes


def _skills(folder: str) -> Values:
    usable, broken = all_skills(places(folder=folder))
    return {"skills": usable, "broken": broken}


def _may_use_agent(skill: FoundSkill) -> bool:
    return bool(skill.skill.run.agent or skill.skill.options.get("prompt"))


def _facts(skill: FoundSkill) -> dict[str, str]:
    """What the skill says of itself, by the names of its SKILL.md."""
    fields = skill.skill.fields
    return {name: _text(value) for name, value in fields.items() if name not in OWN_FIELDS}


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(entry)}" for name, entry in value.items())
    if isinstance(value, list):
        return " ".join(map(_text, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _folder(hv: Context, request: Request) -> str:
    """The root of the project: the folder that has the store, else that of the dashboard."""
    data = hv.places.data
    if os.path.basename(data) == ".hypervisor":
        return os.path.dirname(data)
    return request.folder or os.getcwd()


PAGES = (Page("/new", "new_run", form),)
ACTIONS = (Action("/new/check", check), Action("/new/start", start))
