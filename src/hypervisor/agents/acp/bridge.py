"""Runs an agent that speaks the Agent Client Protocol: one prompt in, JSON lines out.

A process of its own, between the worker and the agent. The prompt is on its stdin; the lines that
it prints are the stream `acp` (streams/acp.py). Requests for permission are answered by the
permissions of the batch. The configuration of our MCP server comes from a file, never from argv.
SIGTERM cancels the agent's turn.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Awaitable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar, cast

from hypervisor.agents.acp.listener import MAX_SHOWN, Listener, tell, usage_in
from hypervisor.agents.acp.order import Order, order_from
from hypervisor.agents.acp.permissions import Grant
from hypervisor.agents.acp.saved_sessions import protect_gemini_session

if TYPE_CHECKING:
    from acp.schema import McpServerStdio

MISSING = "agent-client-protocol is not installed"
AUTH_REQUIRED = -32000
MAX_LINE = 50 << 20  # bytes of a message of the agent
HELLO_PATIENCE = 180.0  # seconds for its first answer; a busy host is slow
START_PATIENCE = 180.0  # for a session, with the start of MCP servers
CANCEL_PATIENCE = 1.5  # to end a turn that was cancelled
# The bridge of Claude Code is told not to use settings of the project, which may run commands.
OPTIONS: dict[str, Any] = {"claudeCode": {"options": {"settingSources": []}}}
T = TypeVar("T")


class Mute(Exception):
    """The agent does not answer."""


class Stopped(Exception):
    """We were asked to stop."""


def main() -> None:
    order = order_from(sys.argv[1:])
    prompt = sys.stdin.buffer.read().decode("utf-8", "replace")
    try:
        import acp  # noqa: F401
    except ImportError:
        sys.exit(MISSING)
    logging.disable(logging.CRITICAL)  # the library logs a traceback for each stray line
    sys.exit(asyncio.run(converse(order, prompt)))


async def converse(order: Order, prompt: str) -> int:
    """One session, new or resumed, and one prompt. Returns the exit code."""
    from acp import RequestError, spawn_agent_process

    folder = os.getcwd()
    listener = Listener(Grant(order.permissions, folder, order.allow, order.granted))
    limits = {"limit": MAX_LINE, "stderr": None}
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    try:
        async with spawn_agent_process(
            cast(Any, listener), *order.command, env=dict(os.environ), transport_kwargs=limits
        ) as (agent, _process):
            session = await _unless(stop, _start(agent, listener, order))
            await _prompt(agent, session, prompt, stop)
    except RequestError as error:
        details = f": {json.dumps(error.data, default=str)}" if error.data else ""
        tell(type="error", code=error.code, message=f"{error}{details}"[:MAX_SHOWN])
        return 1
    except Mute as error:
        tell(type="error", message=str(error))
        return 1
    except Stopped:
        return 128 + signal.SIGTERM
    except ConnectionError:  # to the agent; its text would read like an outage of the provider
        tell(type="error", message="the agent ended without an answer")
        return 1
    except (OSError, EOFError) as error:
        tell(type="error", message=f"the agent ended without an answer: {error}")
        return 1
    return 0


async def _unless(stop: asyncio.Event, work: Awaitable[T]) -> T:
    """The result of the work, unless we are asked to stop before."""
    task, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise Stopped
    finally:
        task.cancel()
        stopping.cancel()


async def _within(seconds: float, what: str, work: Awaitable[T]) -> T:
    try:
        return await asyncio.wait_for(work, seconds)
    except TimeoutError:
        problem = f"the agent did not answer {what} within {seconds:g} s"
        raise Mute(f"{problem}: does its command line start ACP?") from None


async def _start(agent: Any, listener: Listener, order: Order) -> str:
    """Greet the agent, log in if it asks for that, and open the session; returns its id."""
    from acp import PROTOCOL_VERSION, RequestError
    from acp.schema import ClientCapabilities, Implementation

    hello = await _within(
        HELLO_PATIENCE,
        "initialize",
        agent.initialize(
            protocol_version=PROTOCOL_VERSION,
            client_capabilities=ClientCapabilities(),
            client_info=Implementation(name="hypervisor", version="1"),
        ),
    )
    try:
        session = await _within(START_PATIENCE, "session", _open(agent, listener, order, hello))
    except RequestError as error:
        method = _method(hello)
        if error.code != AUTH_REQUIRED or not method:
            raise
        await _within(START_PATIENCE, "authenticate", _log_in(agent, method))
        session = await _within(START_PATIENCE, "session", _open(agent, listener, order, hello))
    if order.mode:
        await _within(
            START_PATIENCE,
            "session/set_mode",
            agent.set_session_mode(session_id=session, mode_id=order.mode),
        )
    tell(type="session", id=session)
    return session


async def _log_in(agent: Any, method: str) -> None:
    from acp import RequestError

    try:
        await agent.authenticate(method_id=method)
    except RequestError as error:
        raise RequestError(AUTH_REQUIRED, f"{method}: {error}", error.data) from None


async def _prompt(agent: Any, session: str, text: str, stop: asyncio.Event) -> None:
    """One turn. If we are asked to stop, the agent may end it in order: it keeps its session, and
    some report what they used."""
    from acp import text_block

    turn = asyncio.ensure_future(agent.prompt(session_id=session, prompt=[text_block(text)]))
    try:
        done = await _unless(stop, asyncio.shield(turn))
    except Stopped:
        with suppress(OSError):
            await agent.cancel(session_id=session)
        await asyncio.wait({turn}, timeout=CANCEL_PATIENCE)
        if not turn.done() or turn.exception() is not None:
            turn.cancel()
            raise
        done = turn.result()
    tell(type="end", reason=done.stop_reason, usage=_usage(done))


def _usage(done: Any) -> dict[str, int] | None:
    if done.usage:
        return cast(dict[str, int], done.usage.model_dump(exclude_none=True))
    quota = (done.field_meta or {}).get("quota")
    return usage_in(quota.get("token_count")) or None if isinstance(quota, dict) else None


async def _open(agent: Any, listener: Listener, order: Order, hello: Any) -> str:
    """The session's id."""
    from acp import RequestError

    servers, cwd = [_server(order.mcp)], os.getcwd()
    if not order.session:
        made = await agent.new_session(cwd=cwd, mcp_servers=servers, **OPTIONS)
        return str(made.session_id)
    can = hello.agent_capabilities
    resumes = can and can.session_capabilities and can.session_capabilities.resume is not None
    if not resumes and not (can and can.load_session):
        tell(type="error", kind="resume", message="the agent cannot resume sessions")
        raise RequestError(-32601, "the agent cannot resume sessions")
    way = agent.resume_session if resumes else agent.load_session
    protect_gemini_session(os.path.expanduser("~"), order.session)
    listener.is_replaying = True
    try:
        await way(cwd=cwd, session_id=order.session, mcp_servers=servers, **OPTIONS)
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
