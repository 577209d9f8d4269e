"""Writes the reference of the MCP tools in docs/mcp.md from the tools themselves."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, cast

from marked import keep

from hypervisor.mcp.claims import ClaimRegistry
from hypervisor.mcp.profiles import ALL, SUPERVISOR, WORKER
from hypervisor.mcp.server import offers_of
from hypervisor.mcp.tool import Offer, made
from hypervisor.queue.context import Context

HINTS = {
    "read_only_hint": "reads only",
    "destructive_hint": "may end or undo something",
    "idempotent_hint": "safe to repeat",
    "open_world_hint": "what it starts may do anything",
}


def page_part() -> str:
    registry = ClaimRegistry(cast("Context", None))  # the tools are only looked at, never called
    found = {profile: _names(profile, registry) for profile in (WORKER, SUPERVISOR)}
    lines = (line for offer in offers_of(ALL, registry) for line in _tool(offer, found))
    return "\n".join(lines)


def _names(profile: str, registry: ClaimRegistry) -> set[str]:
    return {offer.function.__name__ for offer in offers_of(profile, registry)}


def _tool(offer: Offer, profiles: dict[str, set[str]]) -> Iterator[str]:
    tool = made(offer)
    in_profiles = [profile for profile, names in profiles.items() if tool.name in names]
    hints = [text for hint, text in HINTS.items() if getattr(offer.hints, hint)]
    yield from (f"### {tool.name}", "", tool.description, "")
    offered = "Profile" if len(in_profiles) == 1 else "Profiles"
    kind = ", ".join(hints) or "changes data"
    yield from (f"{offered}: {', '.join(in_profiles)}. Effect: {kind}.", "")
    properties = tool.parameters.get("properties", {})
    if properties:
        yield from ("| argument | |", "|---|---|")
    needed = tool.parameters.get("required", [])
    for name, schema in properties.items():
        yield f"| `{name}` | {_escaped(_meaning(schema, name in needed))} |"
    answer = ", ".join(f"`{name}`" for name in (tool.output_schema or {})["properties"])
    yield from ("", f"Returns {answer}.", "")


def _meaning(schema: dict[str, Any], needed: bool) -> str:
    bounds = [schema.get("minimum"), schema.get("maximum")]
    parts = [
        _kind(schema),
        schema.get("description", ""),
        "required" if needed else "",
        f"default {schema['default']}" if "default" in schema else "",
        f"{bounds[0]} to {bounds[1]}" if None not in bounds else "",
    ]
    return "; ".join(part for part in parts if part)


def _kind(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return " / ".join(str(value) or '""' for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(_kind(part) for part in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return str(schema.get("type", "anything"))


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*")


if __name__ == "__main__":
    sys.exit(keep("docs/mcp.md", __file__, page_part(), sys.argv[1:]))
