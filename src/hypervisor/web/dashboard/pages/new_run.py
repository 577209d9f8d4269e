"""New run: a command or function over items, checked before it starts."""

from __future__ import annotations

import os
import shlex
from typing import Any

from markupsafe import escape

from hypervisor.batches.preflight import preflight
from hypervisor.batches.run import map as map_function
from hypervisor.batches.run import run as run_command
from hypervisor.core.errors import InvalidInput
from hypervisor.core.text import pluralize
from hypervisor.inputs.items import item_from_value
from hypervisor.queue.context import Context
from hypervisor.web.dashboard.page import Action, Page, Request, Values

MAX_ITEMS = 5_000  # in a form; files and pipes are for the command line


def form(hv: Context, request: Request) -> Values:
    return {"query": request.query, "folder": _folder(hv)}


def checked(hv: Context, request: Request) -> Values:
    if not request.query.get("command"):
        return {"found": None}
    asked = _asked(request.query)
    items = [item_from_value(item, number) for number, item in enumerate(asked["items"], 1)]
    found = preflight(hv, items, asked["name"] or None, workers=asked["workers"], root=_folder(hv))
    return {"found": found, "shell": _shell(asked), "kept": _kept(request)}


def start(hv: Context, request: Request) -> str:
    asked = _asked(request.form)
    options: dict[str, Any] = {"cwd": _folder(hv)}
    for name in ("name", "workers"):
        if asked[name]:
            options[name] = asked[name]
    if asked["kind"] == "function":
        started = map_function(hv, asked["command"], asked["items"], **options)
    else:
        words = shlex.split(asked["command"])
        started = run_command(hv, words, asked["items"], **options)
    return f"started {pluralize(len(started), 'task')} as {started.batch.name}"


def _asked(given: Any) -> dict[str, Any]:
    command, kind = given.get("command", "").strip(), given.get("kind", "command")
    items = [line for line in given.get("items", "").splitlines() if line.strip()]
    if not command or not items:
        raise InvalidInput("give a command and at least one item")
    if len(items) > MAX_ITEMS:
        raise InvalidInput(f"too many items for a form: {len(items)}; use `hv run --items FILE`")
    try:
        shlex.split(command)
    except ValueError as error:
        raise InvalidInput(f"invalid command: {error}") from None
    workers = given.get("workers", "")
    if workers and not (workers.isascii() and workers.isdigit() and len(workers) < 5):
        raise InvalidInput(f"invalid number of workers {workers[:20]!r}")
    return {
        "command": command,
        "kind": kind,
        "items": items,
        "name": given.get("name", "").strip(),
        "workers": int(workers) if workers else None,
    }


def _kept(request: Request) -> dict[str, str]:
    """What was asked for, as it is: templates show line breaks in other text as their codes."""
    return {name: escape(value) for name, value in request.query.items() if name != "part"}


def _shell(asked: dict[str, Any]) -> str:
    """The same from a terminal."""
    shown = "".join(f" --item {shlex.quote(item)}" for item in asked["items"][:3])
    more = " …" if len(asked["items"]) > 3 else ""
    name = f" --name {shlex.quote(asked['name'])}" if asked["name"] else ""
    workers = f" -j {asked['workers']}" if asked["workers"] else ""
    work = "--fn" if asked["kind"] == "function" else "--"
    return f"hv run{name}{workers}{shown}{more} {work} {asked['command']}"


def _folder(hv: Context) -> str:
    """Where commands run: the folder that has the store, or that of the server."""
    data = hv.places.data
    return os.path.dirname(data) if os.path.basename(data) == ".hypervisor" else os.getcwd()


PAGES = (Page("/new", "new_run", form, {"checked": checked}),)
ACTIONS = (Action("/new/start", start),)
