"""A stand-in for agents that speak the Agent Client Protocol, with the library's own other side.

Its prompt says what it does, as for the other stand-ins: `act-NAME`. A session is a file in HOME.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import uuid
from pathlib import Path
from typing import Any, cast

from acp import (
    PROTOCOL_VERSION,
    RequestError,
    run_agent,
    start_tool_call,
    update_agent_message_text,
    update_tool_call,
)
from acp.schema import (
    AgentCapabilities,
    AuthMethodAgent,
    Cost,
    InitializeResponse,
    LoadSessionResponse,
    NewSessionResponse,
    PermissionOption,
    PromptResponse,
    ToolCallLocation,
    ToolCallUpdate,
    Usage,
    UsageUpdate,
)

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.support.standins.client import Mcp

SESSIONS = Path(os.environ["HOME"]) / ".acp"
OPTIONS = [
    PermissionOption(option_id="always", name="Always", kind="allow_always"),
    PermissionOption(option_id="yes", name="Yes", kind="allow_once"),
    PermissionOption(option_id="no", name="No", kind="reject_once"),
]


class Agent:
    def __init__(self) -> None:
        self.client: Any = None
        self.is_logged_in = "--login" not in sys.argv
        self.servers: list[Any] = []
        self.cancelled = asyncio.Event()

    def on_connect(self, conn: Any) -> None:
        self.client = conn

    async def initialize(self, **_: Any) -> InitializeResponse:
        return InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_capabilities=AgentCapabilities(load_session="--forgets" not in sys.argv),
            auth_methods=[AuthMethodAgent(id="some-api-key", name="A key")],
        )

    async def authenticate(self, method_id: str, **_: Any) -> None:
        self.is_logged_in = method_id == "some-api-key"

    async def new_session(self, cwd: str, mcp_servers: Any = None, **_: Any) -> NewSessionResponse:
        if not self.is_logged_in:
            raise RequestError.auth_required()
        SESSIONS.mkdir(exist_ok=True)
        session = str(uuid.uuid4())
        (SESSIONS / session).write_text("[]")
        self.servers = mcp_servers
        return NewSessionResponse(session_id=session)

    async def load_session(
        self, cwd: str, session_id: str, mcp_servers: Any = None, **_: Any
    ) -> LoadSessionResponse:
        if not (SESSIONS / session_id).exists():
            raise RequestError.resource_not_found(session_id)
        self.servers = mcp_servers
        await self.say(session_id, "BLOCKED: what was said before / - / is repeated?")
        return LoadSessionResponse()

    async def say(self, session: str, text: str) -> None:
        await self.client.session_update(session, update_agent_message_text(text))

    async def prompt(self, session_id: str, prompt: Any, **_: Any) -> PromptResponse:
        path = SESSIONS / session_id
        history = [*json.loads(path.read_text()), prompt[0].text]
        path.write_text(json.dumps(history))
        found = re.search(r"act-([a-z]+)", "\n".join(history))
        act = found[1] if found else "ok"
        if act == "limit":
            raise RequestError(-32603, "Internal error", {"details": "429 Too Many Requests"})
        await self.say(session_id, "I lo")
        await self.say(session_id, "ok.")
        last = await getattr(self, act)(session_id, history)
        await self.say(session_id, f"\n{last}")
        cost = Cost(amount=0.5 * len(history), currency="USD")
        spent = UsageUpdate(session_update="usage_update", used=1, size=2, cost=cost)
        await self.client.session_update(session_id, spent)
        usage = Usage(input_tokens=100, output_tokens=20, cached_read_tokens=5, total_tokens=125)
        return PromptResponse(stop_reason="end_turn", usage=usage)

    async def ok(self, session: str, history: list[str]) -> str:
        return "COMPLETED: looked at it"

    async def asks(self, session: str, history: list[str]) -> str:
        if found := re.search(r"port (\d+)\nEND DATA", history[-1]):
            Path("port").write_text(f"{found[1]} {len(history)}")
            return "COMPLETED: done"
        return "BLOCKED: no port / config is empty / Which port should it use?"

    async def runs(self, session: str, history: list[str]) -> str:
        if await self.tool(session, "touch ran", "execute"):
            Path("ran").touch()
        return "COMPLETED: ran it"

    async def edits(self, session: str, history: list[str]) -> str:
        for path in ("new.txt", "../outside.txt"):
            if await self.tool(session, f"Write {path}", "edit", os.path.abspath(path)):
                Path(path).write_text("made")
        return "COMPLETED: wrote it"

    async def mcp(self, session: str, history: list[str]) -> str:
        (server,) = self.servers
        env = {each.name: each.value for each in server.env}
        access = {"command": server.command, "args": server.args, "env": env}
        allowed = await self.tool(session, "complete_task (hypervisor MCP Server)", "other")
        if allowed:
            with Mcp(access) as client:
                client.call("complete_task", {"summary": "over MCP"})
        return "COMPLETED"

    async def refused(self, session: str, history: list[str]) -> str:
        """It needs one command; what it is told decides what it tries."""
        command = "touch other" if "second way" in history[-1] else "touch ran"
        if await self.tool(session, command, "execute"):
            Path(command.split()[1]).touch()
            return "COMPLETED: ran it"
        return "BLOCKED: it was refused / - / -"

    async def dies(self, session: str, history: list[str]) -> str:
        os._exit(7)

    async def wishes(self, session: str, history: list[str]) -> str:
        """Methods that were not offered."""
        await self.tool(session, "Read it", "read")
        answers = []
        for ask in (
            self.client.read_text_file(session_id=session, path="/etc/hostname"),
            self.client.write_text_file(session_id=session, path="written", content="x"),
            self.client.create_terminal(session_id=session, command="touch", args=["ran"]),
        ):
            try:
                await ask
                answers.append("allowed")
            except (RequestError, ValueError):  # the second if the answer is empty
                answers.append("refused")
        return f"COMPLETED: {' '.join(answers)}"

    async def hangs(self, session: str, history: list[str]) -> str:
        Path("hanging").touch()
        await self.cancelled.wait()
        return "COMPLETED"

    async def cancel(self, session_id: str, **_: Any) -> None:
        Path("cancelled").touch()
        self.cancelled.set()

    async def set_session_mode(self, mode_id: str, session_id: str, **_: Any) -> None:
        Path("mode").write_text(mode_id)

    async def tool(self, session: str, title: str, kind: Any, path: str = "") -> bool:
        id = str(uuid.uuid4())
        places = [ToolCallLocation(path=path)] if path else None
        await self.client.session_update(session, start_tool_call(id, title, kind=kind))
        call = ToolCallUpdate(tool_call_id=id, title=title, kind=kind, locations=places)
        answer = await self.client.request_permission(
            session_id=session, tool_call=call, options=OPTIONS
        )
        allowed = getattr(answer.outcome, "option_id", "") == "yes"
        status: Any = "completed" if allowed else "failed"
        await self.client.session_update(session, update_tool_call(id, status=status))
        return allowed


if __name__ == "__main__":
    if "--mute" in sys.argv:
        sys.stdin.read()
        sys.exit()
    if "--garbage" in sys.argv:
        print("Welcome!", "{", "[]", "17", sep="\n", flush=True)
        sys.stdin.read()
        sys.exit()
    asyncio.run(run_agent(cast(Any, Agent())))
