"""A separate store, and real servers for it: over stdio and over HTTP."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

import hypervisor
from tests.support.mcp_servers import end_mcp_servers

PROGRAM = [
    sys.executable,
    "-I",
    "-c",
    "import sys; from hypervisor.app import main; main()",
]
DEADLINE = 180.0


class Place:
    """A store and the environment to reach it."""

    def __init__(self, folder):
        self.folder = folder
        self.path = str(folder / "store.db")
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        runtime = folder / "run"
        runtime.mkdir(mode=0o700)
        home = folder / "home"
        home.mkdir()
        self.env = {
            **kept,
            "HYPERVISOR_STORE": self.path,
            "HOME": str(home),
            "XDG_RUNTIME_DIR": str(runtime),
        }

    def open(self):
        return hypervisor.open(self.path)

    def start(self, *words, **more):
        env = {**self.env, **more.pop("env", {})}
        return subprocess.Popen([*PROGRAM, *words], env=env, cwd=self.folder, **more)

    def run(self, *words):
        return subprocess.run(
            [*PROGRAM, *words],
            env=self.env,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
        )

    @asynccontextmanager
    async def client(self, tools="all", env=None, **options):
        """A client with a server of its own, over stdio."""
        parameters = StdioServerParameters(
            command=PROGRAM[0],
            args=[*PROGRAM[1:], "mcp", "--tools", tools],
            env={**self.env, **(env or {})},
            cwd=self.folder,
        )
        with anyio.fail_after(DEADLINE):
            async with Client(stdio_client(parameters), **options) as client:
                yield client


class Served:
    """`hv serve`, and how to connect."""

    def __init__(self, place, *words, **options):
        self.place = place
        self.process = place.start(
            "serve", "--port", "0", "--json", *words, stdout=subprocess.PIPE, text=True, **options
        )
        told = json.loads(self.process.stdout.readline())
        self.url, self.token_file = told["url"], told["token_file"]
        self.token = Path(self.token_file).read_text().strip()

    def post(self, body, within=DEADLINE, **headers):
        """One raw request; returns its status and text."""
        given = {
            "Authorization": f"Bearer {self.token}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2025-06-18",
            **headers,
        }
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = httpx2.post(
            self.url,
            content=content,
            headers={k: v for k, v in given.items() if v is not None},
            timeout=within,
        )
        return answer.status_code, answer.text

    @asynccontextmanager
    async def client(self, **options):
        with anyio.fail_after(DEADLINE):
            async with (
                httpx2.AsyncClient(
                    headers={"Authorization": f"Bearer {self.token}"}, timeout=DEADLINE
                ) as web,
                Client(streamable_http_client(self.url, http_client=web), **options) as client,
            ):
                yield client

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait(DEADLINE)
        self.process.stdout.close()


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path)
    yield made
    end_supervisor(made)
    end_mcp_servers(tmp_path)


@pytest.fixture
def served(place):
    made = Served(place)
    yield made
    made.stop()


def end_supervisor(place):
    """End the supervisor that a test started; it would exit by itself after some seconds."""
    if not os.path.exists(place.path):
        return
    with place.open() as hv:
        pid = hv.launcher.supervisor()
        if pid:
            os.kill(pid, signal.SIGINT)
            wait_for(lambda: hv.launcher.supervisor() is None)


def wait_for(condition, seconds=DEADLINE):
    """Wait for a condition; returns its value."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.02)
    return found


async def call(client, tool, /, **arguments):
    """The structured answer; the test fails if the tool does."""
    answer = await client.call_tool(tool, arguments)
    assert not answer.is_error, answer.content[0].text
    assert json.loads(answer.content[0].text) == answer.structured_content
    return answer.structured_content


async def refused(client, tool, /, **arguments):
    """The text of the error; the test fails if there is none."""
    answer = await client.call_tool(tool, arguments)
    assert answer.is_error, answer.structured_content
    return answer.content[0].text


@pytest.fixture
def hv(place):
    with place.open() as opened:
        yield opened
