"""The words that start an agent, from its profile and what the attempt asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from hypervisor.agents.profile import EDIT, AgentProfile


class LaunchOptions(NamedTuple):
    """What an attempt asks of an agent; empty and None: nothing."""

    prompt: str = ""  # used only where the profile takes it as an argument
    session: str = ""  # to go on with
    permissions: str = EDIT
    allow: tuple[str, ...] = ()
    mcp: str = ""  # the path of the file with the MCP servers
    model: str = ""
    turns: int | None = None
    budget: int | None = None  # millionths
    schema: str = ""  # JSON
    schema_file: str = ""  # the path of a file that holds it
    usage: str = ""  # the path of a file for the tokens it used


def arguments(profile: AgentProfile, options: LaunchOptions) -> list[str]:
    """What follows the program on its command line. A session is resumed where that is possible."""
    model = options.model or profile.model
    found = {
        "{mcp}": _fill(profile.mcp, options.mcp),
        "{permissions}": list(profile.permissions.get(options.permissions, ())),
        "{allow}": [word for tool in options.allow for word in _fill(profile.allow, tool)],
        "{pick}": _fill(profile.pick, model),
        "{usage}": _fill(profile.usage, options.usage),
        "{turns}": _fill(profile.turns, "" if options.turns is None else str(options.turns)),
        "{budget}": _fill(profile.budget, "" if options.budget is None else money(options.budget)),
        "{schema}": _fill(profile.schema, options.schema, {"{file}": options.schema_file}),
    }
    template = profile.resume if options.session and profile.resume else profile.argv
    values = {"{prompt}": options.prompt, "{session}": options.session}
    filled: list[str] = []
    for word in template:
        filled += found[word] if word in found else [_replaced(word, values)]
    return filled


def money(micros: int) -> str:
    """An amount as programs take it: 0.5, never 5e-1."""
    return f"{micros / 1e6:.6f}".rstrip("0").rstrip(".")


def _fill(field: tuple[str, ...], value: str, more: Mapping[str, str] | None = None) -> list[str]:
    if not value:
        return []
    return [_replaced(word, {"{value}": value, **(more or {})}) for word in field]


def _replaced(word: str, values: Mapping[str, str]) -> str:
    # In one pass over the template's word: what is put in is never looked at again.
    for name, value in values.items():
        before, found, after = word.partition(name)
        if found:
            return before + value + after
    return word
