"""A gateway in a thread, with a real store, real sessions and a scripted model as its provider."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import shutil
import threading
from pathlib import Path
from typing import Any, NamedTuple

from hypervisor.agents.gateway.ledger import SpendingLedger
from hypervisor.agents.gateway.proxy import Gateway
from hypervisor.agents.gateway.token import SpendToken, digest_of, new_code
from hypervisor.agents.profile import account_of
from hypervisor.app import connect
from hypervisor.queue.add import add
from hypervisor.queue.agent_session import NewSession, Spent
from hypervisor.queue.claim import claim
from hypervisor.queue.sql import agent_sessions
from hypervisor.queue.task import NewTask
from hypervisor.runs import sql as runs_sql
from hypervisor.runs.spec import spec_data
from tests.agents.real.model_server import ModelServer
from tests.agents.real.test_model_server import ASKED
from tests.support.specs import run_spec

KEY = "sk-planted-90aa1c"
AGENTS = {"messages": "claude", "responses": "codex", "gemini": "gemini", "chat": "qwen"}
# The path at the gateway in front of that at the provider, and what the address of it contains.
PREFIXES = {
    "messages": ("/anthropic", ""),
    "responses": ("/openai", "/v1"),
    "gemini": ("/gemini", ""),
    "chat": ("/openai", "/v1"),
}
WORKER = "SELECT worker FROM attempts WHERE task = ? AND number = ?"
HEADERS = {"messages": "x-api-key", "gemini": "x-goog-api-key"}


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def message(self) -> str:
        return str(json.loads(self.body)["error"]["message"])


class Granted(NamedTuple):
    """A session that may spend."""

    id: str
    token: str
    claim: str
    batch: str
    task: str


class GatewayBench:
    def __init__(self, folder: Path, model: ModelServer, config: str = "") -> None:
        self.model = model
        data = folder / ".hypervisor"
        data.mkdir()
        (data / "config.toml").write_text(config)
        env = {
            "ANTHROPIC_BASE_URL": model.url,
            "OPENAI_BASE_URL": f"{model.url}/v1",
            "GOOGLE_GEMINI_BASE_URL": model.url,
            **dict.fromkeys(("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"), KEY),
            "HV_ACTOR": "tester",
        }
        self.hv = connect(str(data / "store.db"), relaxed=True, pid=os.getpid(), environment=env)
        self.env = env
        self.port = 0
        self._started = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._serve()))
        self._thread.start()
        assert self._started.wait(30)

    async def _serve(self) -> None:
        self.gateway = Gateway(SpendingLedger(self.hv))
        self._over = asyncio.Event()
        server = await asyncio.start_server(self.gateway.connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._over.wait()
        server.close()
        self.gateway.close()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(30)
        runtime = self.hv.places.runtime
        self.hv.close()
        shutil.rmtree(runtime, ignore_errors=True)

    def session(self, agent: str = "claude", *, pid: int | None = None, **spec: Any) -> Granted:
        """A claimed task of a new batch, and a session that works on it."""
        hv, store = self.hv, self.hv.store
        number = len(store.read(agent_sessions.sessions))
        described = spec_data(run_spec("/", agent=agent, agents=(agent,), **spec))
        batch = store.write(runs_sql.declare, f"batch-{number}", described, "t", store.now()).id
        hv.launcher.keep_environment(batch)
        add(hv, [NewTask(f"task-{number}")], f"batch-{number}")
        (lease,) = claim(hv, f"w{number}", batch=f"batch-{number}", pid=pid)
        return self.another(agent, batch, lease.token)

    def another(self, agent: str, batch: str, token: str) -> Granted:
        """One more session for the same claim."""
        task, attempt, _ = token.split(".")
        code = new_code()
        ((worker,),) = self.hv.store.read(lambda s: s.rows(WORKER, (task, int(attempt))))
        account = account_of(self.hv.agent_settings.profiles[agent], self.env)
        new = NewSession(
            agent,
            account,
            batch,
            worker,
            task,
            int(attempt),
            spend_code=digest_of(code),
        )
        id = self.hv.store.write(agent_sessions.open_session, new, self.hv.now())
        return Granted(id, str(SpendToken(id, code)), token, batch, task)

    def ask(self, granted: Granted | str, wire: str = "messages", **more: Any) -> Answer:
        """One call through the gateway, as the CLI of that wire makes it."""
        token = granted if isinstance(granted, str) else granted.token
        path, body = ASKED[wire]
        gateway, upstream = PREFIXES[wire]
        return send(
            self.port, f"{gateway}{path.removeprefix(upstream)}", token, {**body, **more}, wire
        )

    def direct(self, wire: str, **more: Any) -> Answer:
        path, body = ASKED[wire]
        port = int(self.model.url.rpartition(":")[2])
        return send(port, path, KEY, {**body, **more}, wire)

    def spent(self, granted: Granted) -> Spent:
        self.in_order(lambda: None)
        return self.hv.store.read(agent_sessions.spent, task=granted.task)

    def in_order(self, job: Any) -> None:
        """After everything that the ledger has been given so far."""
        asyncio.run_coroutine_threadsafe(self.gateway.in_order(job), self._loop).result(30)


def send(port: int, path: str, token: str, body: dict[str, Any], wire: str) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    header = HEADERS.get(wire, "authorization")
    value = token if wire in HEADERS else f"Bearer {token}"
    try:
        text = json.dumps({"stream": True, **body})
        connection.request("POST", path, text, {header: value, "content-type": "application/json"})
        answer = connection.getresponse()
        return Answer(
            answer.status, {k.lower(): v for k, v in answer.headers.items()}, answer.read()
        )
    finally:
        connection.close()
