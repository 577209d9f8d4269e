"""How a function becomes a tool: its hints, a small schema, short errors.

A tool list is read by a model at every turn, so its schemas leave out what says
nothing: titles, empty defaults, references. Errors name the next step.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.server.mcpserver.tools import Tool, ToolManager
from mcp_types import CallToolResult, InputRequiredResult, TextContent, ToolAnnotations
from pydantic import ValidationError

from hypervisor.agents.secrets import TokenHider
from hypervisor.core.errors import HypervisorError, LeaseLost
from hypervisor.core.records import NamedTuple
from hypervisor.mcp.parameters import DESCRIPTIONS
from hypervisor.serving.refusals import Refusals

if TYPE_CHECKING:
    from mcp.server.mcpserver.context import Context as CallContext
    from mcp.shared._stream_protocols import ReadStream, WriteStream
    from mcp.shared.message import SessionMessage

    from hypervisor.mcp.claims import ClaimRegistry

CLAIMS = ("token", "tokens")  # arguments that name one
# What a dead server claimed for a client that never heard of it is given back before this is
# called again.
CLAIMING = "claim_next_task"
LOST = "lost"  # in an answer: those of these tokens that do not hold
MAX_PROBLEMS = 3
MAX_PROBLEM_LENGTH = 500
# Commands for people, and the tools that do the same for agents.
INSTEAD = {
    "`hv ls`": "list_tasks",
    "`hv batches`": "get_index_stats with include_projects",
    "`hv run`": "spawn_parallel_tasks several times",
}
EMPTY: tuple[object, ...] = (None, "", [], {}, False)


def _hints(
    read_only: bool, destructive: bool, idempotent: bool, open_world: bool = False
) -> ToolAnnotations:
    return ToolAnnotations(
        read_only_hint=read_only,
        destructive_hint=destructive,
        idempotent_hint=idempotent,
        open_world_hint=open_world,
    )


READ = _hints(read_only=True, destructive=False, idempotent=True)
ADD = _hints(read_only=False, destructive=False, idempotent=False)
CHANGE = _hints(read_only=False, destructive=False, idempotent=True)
END = _hints(read_only=False, destructive=True, idempotent=True)
RUN = _hints(read_only=False, destructive=True, idempotent=False, open_world=True)


class Offer(NamedTuple):
    """A function as a tool."""

    function: Callable[..., Any]
    hints: ToolAnnotations


_tools: dict[Callable[..., Any], Tool] = {}  # by method: each client has an object of its own


def made(offer: Offer) -> Tool:
    """The tool: made once, and bound for each client."""
    method = getattr(offer.function, "__func__", offer.function)
    if method not in _tools:
        _tools[method] = _make(offer).model_copy(update={"fn": method})
    return _tools[method].model_copy(update={"fn": offer.function})


def _make(offer: Offer) -> Tool:
    """The tool, with schemas that are no longer than they need be."""
    function = offer.function
    tool = Tool.from_function(
        function, description=" ".join((function.__doc__ or "").split()), annotations=offer.hints
    )
    tool.parameters = slim(tool.parameters)
    for name, schema in tool.parameters.get("properties", {}).items():
        if "description" not in schema:
            schema["description"] = DESCRIPTIONS[name]
    assert tool.fn_metadata.output_schema is not None, f"{tool.name} has no output schema"
    tool.fn_metadata.output_schema = slim(tool.fn_metadata.output_schema)
    return tool


def slim(schema: dict[str, Any]) -> dict[str, Any]:
    """The same schema with its references resolved and nothing that says nothing."""
    slimmed: dict[str, Any] = _slim(schema, schema.get("$defs", {}))
    return {"type": "object", **slimmed}


def _slim(part: Any, defs: dict[str, Any]) -> Any:
    if isinstance(part, list):
        return [_slim(member, defs) for member in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        return _slim(defs[part["$ref"].rpartition("/")[2]], defs)
    slim = {
        name: {key: _slim(member, defs) for key, member in value.items()}
        if name == "properties"
        else _slim(value, defs)
        for name, value in part.items()
        if not (name in ("title", "$defs") or (name == "default" and value in EMPTY))
    }
    choices = [member for member in slim.get("anyOf", ()) if member != {"type": "null"}]
    if len(choices) == 1:
        return {**choices[0], **{k: v for k, v in slim.items() if k != "anyOf"}}
    if slim.get("additionalProperties") is True:
        del slim["additionalProperties"]
    return slim


class Tools(ToolManager):
    """Makes a tool when it is first asked for: most sessions need a few of them."""

    def __init__(self, offers: Sequence[Offer]) -> None:
        super().__init__()
        self._offers = {offer.function.__name__: offer for offer in offers}

    def get_tool(self, name: str) -> Tool | None:
        if name not in self._tools and name in self._offers:
            self._tools[name] = made(self._offers[name])
        return self._tools.get(name)

    def list_tools(self) -> list[Tool]:
        return [tool for name in self._offers if (tool := self.get_tool(name))]


class ToolServer(MCPServer[Any]):
    """Answers as small as they can be, and errors that help. An agent's text is stored, so the
    secrets it was given are removed first."""

    registry: ClaimRegistry  # of the client that is served
    hider = TokenHider()
    refusals = Refusals()
    running = 0  # calls
    repeatable: tuple[str, ...] = ()  # tools that may be called again if no answer came

    def offer(self, offers: Sequence[Offer]) -> None:
        """Offer these tools and no others."""
        self._tool_manager = Tools(offers)
        self.repeatable = tuple(
            offer.function.__name__
            for offer in offers
            if offer.hints.idempotent_hint or offer.function.__name__ == CLAIMING
        )

    async def run_streams(
        self, source: ReadStream[SessionMessage | Exception], target: WriteStream[SessionMessage]
    ) -> None:
        """Serve the connected client."""
        inner = self._lowlevel_server
        await inner.run(source, target, inner.create_initialization_options())

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: CallContext[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        tool = self._tool_manager.get_tool(name)
        if tool is None:
            near = ", ".join(sorted(each.name for each in self._tool_manager.list_tools()))
            raise ToolError(f"unknown tool {name[:60]!r}. Available: {near}.")
        given = {
            key: value if key in CLAIMS else self.hider.clean_value(value)
            for key, value in arguments.items()
            if value is not None
        }
        _refuse_unknown(tool, given)
        self.running += 1
        try:
            answer = await super().call_tool(name, given, context)
        except ToolError as error:
            if isinstance(error.__cause__, LeaseLost):
                await self._slow_down(1)
            raise _reworded(error, tool) from error.__cause__
        finally:
            self.running -= 1
        if isinstance(answer, CallToolResult) and answer.structured_content is not None:
            await self._add_messages(answer.structured_content, given)
            text = json.dumps(answer.structured_content, ensure_ascii=False, separators=(",", ":"))
            answer.content = [TextContent(type="text", text=text)]
            await self._slow_down(len(answer.structured_content.get(LOST) or ()))
        return answer

    async def _add_messages(self, answer: dict[str, Any], given: dict[str, Any]) -> None:
        """Add what people wrote about the task that the client works on."""
        from hypervisor.mcp.answers import message_line

        token = given.get("token") or self.registry.given.token
        messages = await anyio.to_thread.run_sync(self.registry.unread, token) if token else []
        if messages:
            lines = [answer.get("note", ""), *map(message_line, messages)]
            answer["note"] = "\n".join(filter(None, lines))

    async def _slow_down(self, refused: int) -> None:
        if refused:
            await anyio.sleep(await anyio.to_thread.run_sync(self.refusals.add, refused))


def _refuse_unknown(tool: Tool, given: dict[str, Any]) -> None:
    """A filter that is misspelt and left out would answer another question."""
    known = tool.parameters.get("properties", {})
    if unknown := [repr(name[:60]) for name in given if name not in known]:
        raise ToolError(
            f"{tool.name} has no argument {' or '.join(unknown[:MAX_PROBLEMS])}. It takes: "
            f"{', '.join(known) or 'none'}. Nothing was changed."
        )


def _reworded(error: ToolError, tool: Tool) -> ToolError:
    cause = error.__cause__
    if isinstance(cause, HypervisorError):
        return ToolError(in_short(cause))
    if isinstance(cause, ValidationError):
        names = ", ".join(tool.parameters.get("properties", {}))
        return ToolError(f"{_complaints(cause)}. {tool.name} takes: {names}. Nothing was changed.")
    if isinstance(error, UnexpectedToolError):
        return UnexpectedToolError(
            f"{tool.name} failed unexpectedly; see the server's log. Check with get_task what "
            f"was changed before you try again."
        )
    return ToolError(str(cause or error))


def in_short(error: HypervisorError) -> str:
    """An error as an agent reads it."""
    text = str(error)
    if isinstance(error, LeaseLost):
        text = text.replace(f"the claim {error.token} has ended", "the claim has ended", 1)
        text = text.replace("claim again.", "stop working on this task and call claim_next_task.")
    for command, tool in INSTEAD.items():
        text = text.replace(command, tool)
    return text if len(text) <= MAX_PROBLEM_LENGTH else f"{text[:MAX_PROBLEM_LENGTH]}…"


def _complaints(error: ValidationError) -> str:
    errors = error.errors(include_url=False, include_input=False, include_context=False)
    parts = [
        f"{'.'.join(map(str, problem['loc']))[:60]}: {problem['msg'].lower()}"
        for problem in errors[:MAX_PROBLEMS]
    ]
    more = f" and {len(errors) - MAX_PROBLEMS} more" if len(errors) > MAX_PROBLEMS else ""
    return ("; ".join(parts) + more)[:MAX_PROBLEM_LENGTH]
