"""The command line of an agent, from its profile and the attempt."""

from __future__ import annotations

from collections.abc import Mapping

from hypervisor.agents.profile import AgentProfile
from hypervisor.core.records import NamedTuple
from hypervisor.runs.spec import Permissions


class LaunchOptions(NamedTuple):
    """Options of an agent's command line; empty or None: not set."""

    prompt: str = ""  # used if the profile takes it as an argument
    session: str = ""  # to resume
    permissions: Permissions = "edit"
    allow: tuple[str, ...] = ()
    mcp: str = ""  # the path of the file with the MCP servers
    model: str = ""
    turns: int | None = None
    budget: int | None = None  # millionths
    schema: str = ""  # JSON
    schema_file: str = ""  # the path of a file with it
    usage: str = ""  # the path of a file for its token usage
    attach: bool = False  # in a terminal


def arguments(profile: AgentProfile, options: LaunchOptions) -> list[str]:
    """The arguments of the program. A session is resumed if the profile supports it."""
    model = options.model or profile.model
    option_words = {
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
    template = profile.attach if options.attach else template
    values = {"{prompt}": options.prompt, "{session}": options.session}
    filled: list[str] = []
    for word in template:
        filled += option_words[word] if word in option_words else [_replaced(word, values)]
    return filled


def money(micros: int) -> str:
    """An amount in decimal notation: 0.5, never 5e-1."""
    return f"{micros / 1e6:.6f}".rstrip("0").rstrip(".")


def _fill(field: tuple[str, ...], value: str, more: Mapping[str, str] | None = None) -> list[str]:
    if not value:
        return []
    return [_replaced(word, {"{value}": value, **(more or {})}) for word in field]


def _replaced(word: str, values: Mapping[str, str]) -> str:
    # One replacement per word: inserted values are never searched for placeholders.
    for name, value in values.items():
        before, match, after = word.partition(name)
        if match:
            return before + value + after
    return word
