"""The MCP server with third-party clients: JavaScript, the Inspector, the conformance suite."""

from __future__ import annotations

import http.client
import http.server
import json
import shlex
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hypervisor import NewTask
from tests.agents.real import clis
from tests.mcp.conftest import DEADLINE, PROGRAM

pytestmark = pytest.mark.agents
HERE = Path(__file__).resolve().parent
# What the suite can say about a server without the tools that it wants for its tests: which are
# there to return images, to sample, to log, … Those scenarios fail only because these tools are
# missing.
APPLICABLE = (
    "server-initialize",
    "server-session-lifecycle",
    "ping",
    "tools-list",
    "tools-call-error",
    "resources-list",
    "sep-2164-resource-not-found",
    "prompts-list",
    "dns-rebinding-protection",
    "caching",
    "http-header-validation",
    "server-sse-multiple-streams",
)
WANTS_A_TOOL = (
    "sep-2575-server-rejects-undeclared-capability",
    "sep-2575-missing-capability-http-400",
)


def modules() -> Path:
    return clis.folder() / "node_modules"


def node(place, *words, **env):
    program = str(modules() / "node/bin/node")
    return subprocess.run(
        [program, *map(str, words)],
        env={**place.env, **env},
        cwd=place.folder,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture(autouse=True)
def programs():
    for name in ("client", "conformance", "inspector", "sdk"):
        if not (modules() / "@modelcontextprotocol" / name).exists():
            pytest.skip(f"@modelcontextprotocol/{name} is not installed: make test-agents")


def check_crowd(place, ended):
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert sorted(told["done"]) == sorted(told["ids"]) and len(set(told["ids"])) == 20
    assert told["summary"]["succeeded"] and told["summary"]["states"] == {"done": 20}
    with place.open() as hv:
        assert len(hv.receipts("crowd")) == 20


def test_a_crowd_of_javascript_clients_over_stdio(place):
    """The earlier SDK, which most clients use: with a handshake."""
    ended = node(place, HERE / "crowd.js", clis.folder(), "old", *PROGRAM, "mcp")
    check_crowd(place, ended)


def test_a_crowd_of_javascript_clients_over_http(served):
    """The current SDK: without sessions."""
    ended = node(
        served.place, HERE / "crowd.js", clis.folder(), "new", served.url, TOKEN=served.token
    )
    check_crowd(served.place, ended)


def inspect(place, *words):
    command = modules() / "@modelcontextprotocol/inspector"
    entry = json.loads((command / "package.json").read_text())["bin"]["mcp-inspector"]
    return node(place, command / entry, "--cli", *words)


@pytest.mark.parametrize("how", ["stdio", "http"])
def test_the_inspector_lists_and_calls(request, place, how):
    if how == "http":
        served = request.getfixturevalue("served")
        target = [served.url, "--header", f"Authorization: Bearer {served.token}"]
    else:
        target = [*starter(place), "-e", f"HYPERVISOR_STORE={place.path}"]
    with place.open() as hv:
        task = hv.add([NewTask("Look")]).ids[0]
    listed = inspect(place, *target, "--method", "tools/list", "--strict")
    assert listed.returncode == 0, listed.stderr
    assert {tool["name"] for tool in json.loads(listed.stdout)["tools"]} >= {"claim_next_task"}
    call = ("--method", "tools/call", "--format", "json", "-q", "--tool-name")
    shown = inspect(place, *target, *call, "get_task", "--tool-args-json", json.dumps({"id": task}))
    assert json.loads(shown.stdout)["result"]["structuredContent"]["title"] == "Look"
    wrong = inspect(place, *target, *call, "complete_task", "--tool-args-json", '{"token": "x"}')
    assert wrong.returncode == 5 and "not a claim token" in wrong.stdout


def starter(place):
    """The Inspector takes the server's options for its own: a file without any."""
    path = place.folder / "server"
    words = shlex.join([sys.executable, "-I", "-c", PROGRAM[-1], "mcp"])
    path.write_text(f"#!/bin/sh\nexec {words}\n")
    path.chmod(0o755)
    return [str(path)]


class Door(http.server.ThreadingHTTPServer):
    """A proxy that adds the token, which the suite cannot send; everything else is unchanged."""

    def __init__(self, served):
        self.target, self.token = served.url.split("/")[2], served.token
        super().__init__(("127.0.0.1", 0), Passage)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Passage(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Door

    def _pass(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        behind = http.client.HTTPConnection(self.server.target, timeout=DEADLINE)
        behind.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() != "connection":
                behind.putheader(name, value)
        behind.putheader("Authorization", f"Bearer {self.server.token}")
        behind.endheaders(body)
        answer = behind.getresponse()
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()
        while part := answer.read1(65_536):
            self.wfile.write(part)
            self.wfile.flush()
        self.close_connection = True

    do_GET = do_POST = do_DELETE = _pass

    def log_message(self, *_):
        pass


def test_the_conformance_suite(served, capsys):
    door = Door(served)
    found = served.place.folder / "found"
    entry = modules() / "@modelcontextprotocol/conformance"
    program = json.loads((entry / "package.json").read_text())["bin"]["conformance"]
    url = f"http://127.0.0.1:{door.server_address[1]}/mcp"
    try:
        node(served.place, entry / program, "server", "--url", url, "--suite", "all", "-o", found)
    finally:
        door.shutdown()
        door.server_close()
    checks = {each.name: json.loads((each / "checks.json").read_text()) for each in found.iterdir()}
    passed = sum(check_scenario(checks, name) for name in APPLICABLE)
    assert passed >= 30
    stateless = failures(checks, "server-stateless")
    assert {check["id"] for check in stateless} <= set(WANTS_A_TOOL)
    with capsys.disabled():
        print(f"\n{len(APPLICABLE)} scenarios, {passed} checks of the suite passed", end=" ")
    assert served.process.poll() is None


def of(checks, scenario):
    return [
        c for name, each in checks.items() if name.startswith(f"server-{scenario}-2") for c in each
    ]


def failures(checks, scenario):
    assert of(checks, scenario), f"{scenario} did not run"
    return [check for check in of(checks, scenario) if check["status"] == "FAILURE"]


def check_scenario(checks, scenario):
    """How many of its checks passed; none may fail."""
    assert failures(checks, scenario) == []
    return sum(check["status"] == "SUCCESS" for check in of(checks, scenario))
