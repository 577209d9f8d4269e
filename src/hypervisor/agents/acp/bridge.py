"""Runs an agent that speaks the Agent Client Protocol: one prompt in, JSON lines out.

A process of its own, between the worker and the agent. The prompt is on its stdin; the lines that
it prints are the stream `acp` (streams/acp.py). Requests for permission are answered by the
permissions of the batch. The configuration of our MCP server comes from a file, never from argv.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from hypervisor.agents.acp.permissions import Grant, Wish, choose, is_allowed
from hypervisor.runs.spec import Permissions

if TYPE_CHECKING:
    from acp.schema import McpServerStdio

MISSING = "agent-client-protocol is not installed"
AUTH_REQUIRED = -32000
MAX_LINE = 50 << 20  # bytes of a message of the agent
MAX_SHOWN = 20_000


class Order(NamedTuple):
    """What to run, as the worker writes it into argv: JSON, then the agent's own words."""

    mcp: str
    permissions: Permissions
    session: str
    allow: tuple[str, ...]
    command: tuple[str, ...]


def order_words(order: Order) -> tuple[str, ...]:
    """The arguments that `main` reads."""
    head = {"mcp": order.mcp, "permissions": order.permissions, "session": order.session}
    return (json.dumps({**head, "allow": order.allow}), *order.command)


def main() -> None:
    head, *command = sys.argv[1:]
    order = Order(**json.loads(head), command=tuple(command))
    prompt = sys.stdin.buffer.read().decode("utf-8", "replace")
    try:
        import acp  # noqa: F401
    except ImportError:
        sys.exit(MISSING)
    sys.exit(asyncio.run(converse(order, prompt)))


def tell(**event: Any) -> None:
    """Print one line of the stream."""
    sys.stdout.write(json.dumps(event, ensure_ascii=False) + "\n")
    sys.stdout.flush()


class Listener:
    """The client's side of the protocol: prints what the agent does, and answers what it asks."""

    def __init__(self, grant: Grant) -> None:
        self._grant = grant
        self.is_replaying = False  # a loaded session repeats its history

    def on_connect(self, conn: Any) -> None:
        """Nothing has to be prepared."""

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        kind = update.session_update
        if self.is_replaying:
            return
        if kind == "agent_message_chunk":
            tell(type="message", text=getattr(update.content, "text", ""))
        elif kind == "tool_call":
            tell(type="tool", name=update.title, kind=update.kind, input=_shown(update.raw_input))
        elif kind == "tool_call_update" and update.status in ("completed", "failed"):
            failed, content = update.status == "failed", update.raw_output or update.content
            tell(type="tool_result", failed=failed, content=_shown(content))
        elif kind == "usage_update" and update.cost is not None:
            tell(type="cost", amount=update.cost.amount, currency=update.cost.currency)

    async def request_permission(
        self, session_id: str, tool_call: Any, options: Any, **_: Any
    ) -> Any:
        from acp.schema import AllowedOutcome, DeniedOutcome, RequestPermissionResponse

        paths = tuple(place.path for place in tool_call.locations or ())
        wish = Wish(tool_call.kind or "", tool_call.title or "", paths)
        allowed = is_allowed(wish, self._grant)
        if not allowed:
            tell(type="denied", name=wish.title or wish.kind)
        option = choose([(each.option_id, each.kind) for each in options], allowed)
        if not option:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(
            outcome=AllowedOutcome(outcome="selected", option_id=option)
        )


async def converse(order: Order, prompt: str) -> int:
    """One session, new or resumed, and one prompt."""
    from acp import RequestError, spawn_agent_process

    listener = Listener(Grant(order.permissions, os.getcwd(), tuple(order.allow)))
    limits = {"limit": MAX_LINE, "stderr": None}
    try:
        async with spawn_agent_process(
            cast(Any, listener), *order.command, env=dict(os.environ), transport_kwargs=limits
        ) as (agent, _process):
            await _talk(agent, listener, order, prompt)
    except RequestError as error:
        details = f": {json.dumps(error.data, default=str)}" if error.data else ""
        tell(type="error", code=error.code, message=f"{error}{details}"[:MAX_SHOWN])
        return 1
    except (OSError, EOFError, ConnectionError) as error:
        tell(type="error", message=f"the agent ended the connection: {error}")
        return 1
    return 0


async def _talk(agent: Any, listener: Listener, order: Order, prompt: str) -> None:
    from acp import PROTOCOL_VERSION, RequestError, text_block
    from acp.schema import ClientCapabilities, Implementation

    hello = await agent.initialize(
        protocol_version=PROTOCOL_VERSION,
        client_capabilities=ClientCapabilities(),
        client_info=Implementation(name="hypervisor", version="1"),
    )
    try:
        session = await _open(agent, listener, order, hello)
    except RequestError as error:
        method = _method(hello)
        if error.code != AUTH_REQUIRED or not method:
            raise
        await agent.authenticate(method_id=method)
        session = await _open(agent, listener, order, hello)
    tell(type="session", id=session)
    done = await agent.prompt(session_id=session, prompt=[text_block(prompt)])
    usage = done.usage.model_dump(exclude_none=True) if done.usage else None
    tell(type="end", reason=done.stop_reason, usage=usage)


async def _open(agent: Any, listener: Listener, order: Order, hello: Any) -> str:
    """The session's id."""
    from acp import RequestError

    servers, cwd = [_server(order.mcp)], os.getcwd()
    if not order.session:
        return str((await agent.new_session(cwd=cwd, mcp_servers=servers)).session_id)
    can = hello.agent_capabilities
    resumes = can and can.session_capabilities and can.session_capabilities.resume is not None
    if not resumes and not (can and can.load_session):
        tell(type="error", kind="resume", message="the agent cannot resume sessions")
        raise RequestError(-32601, "the agent cannot resume sessions")
    way = agent.resume_session if resumes else agent.load_session
    listener.is_replaying = True
    try:
        await way(cwd=cwd, session_id=order.session, mcp_servers=servers)
    except RequestError as error:
        if error.code != AUTH_REQUIRED:
            tell(type="error", kind="resume", message=f"the session cannot be resumed: {error}")
        raise
    finally:
        listener.is_replaying = False
    return order.session


def _method(hello: Any) -> str:
    """The way to log in that needs no person: a key in the environment."""
    methods = [method.id for method in hello.auth_methods or ()]
    return next((id for id in methods if "key" in id.casefold()), "")


def _server(path: str) -> McpServerStdio:
    from acp.schema import EnvVariable, McpServerStdio

    with open(path, encoding="utf-8") as file:
        ((name, entry),) = json.load(file)["mcpServers"].items()
    env = [EnvVariable(name=key, value=value) for key, value in entry["env"].items()]
    return McpServerStdio(name=name, command=entry["command"], args=entry["args"], env=env)


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        value = [
            part.model_dump(exclude_none=True) for part in value if hasattr(part, "model_dump")
        ]
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text[:MAX_SHOWN]
