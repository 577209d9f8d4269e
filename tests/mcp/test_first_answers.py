"""The first questions of a client: answered at once, as the SDK would; the rest is the SDK's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest

from hypervisor.mcp.first_answers import VERSIONS, Passed, meet
from hypervisor.mcp.profiles import PROFILES
from tests.mcp.conftest import wait_for

LISTS = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")
TOLD = '{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
OF_THE_SDK = {"_meta": {"peculiar": 1}}


def request(method, number=7, **params):
    found = {"jsonrpc": "2.0", "id": number, "method": method}
    return json.dumps({**found, "params": params} if params else found) + "\n"


def hello(version="2025-06-18", number=0, **more):
    who = {"clientInfo": {"name": "test", "version": "1"}, "capabilities": {"roots": {}}}
    return request("initialize", number, protocolVersion=version, **{**who, **more})


class Talk:
    def __init__(self, place, profile):
        self.server = place.start(
            "mcp", "--tools", profile, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def tell(self, *lines):
        self.server.stdin.write("".join(lines).encode("utf-8", "surrogateescape"))
        self.server.stdin.flush()

    def ask(self, line):
        self.tell(line)
        return self.server.stdout.readline()

    def left(self):
        """What it says after its client has left."""
        said, _ = self.server.communicate(timeout=60)
        return said


@contextmanager
def talk(place, profile="all"):
    found = Talk(place, profile)
    try:
        yield found
    finally:
        found.server.kill()
        found.server.communicate()


@pytest.mark.parametrize("profile", PROFILES)
def test_it_says_what_the_sdk_says_to_the_byte(place, profile):
    with talk(place, profile) as sdk:
        for version in VERSIONS:
            with talk(place, profile) as door:
                assert door.ask(hello(version)) == sdk.ask(hello(version, **OF_THE_SDK))
                for number, method in enumerate((*LISTS, "ping"), 1):
                    said = door.ask(request(method, number, _meta={"progressToken": number}))
                    assert said == sdk.ask(request(method, number))
                assert door.ask(request("ping", "me")) == sdk.ask(request("ping", "me"))


def test_a_session_goes_on_with_the_sdk_and_nothing_is_answered_twice(place):
    with talk(place) as client:
        client.ask(hello())
        client.tell(TOLD)
        client.ask(request("tools/list", 1))
        made = json.loads(
            client.ask(request("tools/call", 2, name="create_task", arguments={"title": "Look"}))
        )
        assert made["id"] == 2 and not made["result"]["isError"]
        again = client.ask(request("tools/list", 3))  # from the SDK now
        assert [each["name"] for each in json.loads(again)["result"]["tools"]]
        assert client.left() == b""
    with place.open() as hv:
        assert hv.stats().states["active"] == 1


def test_all_at_once_is_answered_once(place):
    """A client need not wait for an answer before it asks on."""
    asked = [hello(), TOLD, request("tools/list", 1), request("ping", 2)]
    call = request("tools/call", 3, name="list_tasks", arguments={})
    with talk(place) as client:
        client.tell(*asked, call, request("ping", 4), request("prompts/list", 5))
        said = [json.loads(client.server.stdout.readline()) for _ in range(6)]
        assert sorted(each["id"] for each in said) == list(range(6))
        assert all("result" in each for each in said)
        assert client.left() == b""


def test_a_client_that_only_asks_first_questions_leaves_nothing_behind(place):
    with talk(place) as client:
        client.ask(hello())
        client.ask(request("ping", 1))
        assert client.left() == b"" and client.server.returncode == 0
    assert not os.path.exists(place.path)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_it_ends_at_the_door_when_told_to(place, number):
    with talk(place) as client:
        client.ask(hello())
        client.server.send_signal(number)
        assert client.server.wait(60) == 0


def test_nothing_of_the_sdk_is_loaded_for_the_first_questions():
    """What takes a second; the door answers in a tenth of it."""
    program = (
        "import sys; import hypervisor.mcp.claims, hypervisor.mcp.stdio; "
        "print({name.split('.')[0] for name in sys.modules} & set(sys.argv[1:]))"
    )
    heavy = ["mcp", "mcp_types", "pydantic", "anyio", "asyncio", "starlette", "uvicorn"]
    run = subprocess.run(
        [sys.executable, "-I", "-c", program, *heavy], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "set()"


HALF = "half \ud800 a character"


@pytest.mark.parametrize("with_sdk", [False, True])
@pytest.mark.parametrize(
    ("line", "number", "said"),
    [
        (request("tools/call", name="remember", arguments={"text": HALF}), 7, "surrogate"),
        (request("tools/call", name=HALF, arguments={}), 7, "surrogate"),
        (request(HALF), 7, "surrogate"),
        (request("ping", HALF), None, "surrogate"),
        (request("ping", x=json.loads("[" * 400 + "]" * 400)), 7, "nested too deeply"),
        ("[" * 50_000 + "\n", None, "nested too deeply"),
        ('{"jsonrpc":"2.0","id":7,"method"\n', None, "no JSON"),
        ("\udcff\udcfe\n", None, "no JSON"),  # no UTF-8 either
        ("[1]\n", None, "no JSON-RPC"),
        ('"text"\n', None, "no JSON-RPC"),
        ("{}\n", None, "no JSON-RPC"),
        ('{"jsonrpc":"2.0","id":7,"method":7}\n', 7, "no JSON-RPC"),
        ('{"jsonrpc":"1.0","id":7,"method":"ping"}\n', 7, "no JSON-RPC"),
        ('{"jsonrpc":"2.0","id":7,"method":"ping","params":[1]}\n', 7, "no JSON-RPC"),
    ],
)
def test_what_cannot_be_read_is_answered_and_the_session_goes_on(
    place, line, number, said, with_sdk
):
    with talk(place) as client:
        client.ask(hello())
        if with_sdk:
            client.ask(request("tools/list", 1, **OF_THE_SDK))
        answer = json.loads(client.ask(line))
        assert answer["id"] == number and said in answer["error"]["message"], answer
        assert json.loads(client.ask(request("ping", 8)))["id"] == 8


@pytest.mark.parametrize(
    "line",
    [
        "\n",
        "  \n",
        '{"jsonrpc":"2.0","method":"notifications/\\ud800"}\n',
        '{"jsonrpc":"2.0","id":7,"result":"\\ud800"}\n',
        '{"jsonrpc":"2.0","id":7,"error":1}\n',
    ],
)
def test_what_wants_no_answer_gets_none(place, line):
    with talk(place) as client:
        client.ask(hello())
        client.tell(line)
        assert json.loads(client.ask(request("ping", 8)))["id"] == 8


class Pipes:
    """A door in this process."""

    def __init__(self):
        self.source, self.mouth = os.pipe()
        self.ear, self.target = os.pipe()
        self.begun = 0

    def meet(self, *lines, ends=True):
        os.write(self.mouth, "".join(lines).encode("utf-8", "surrogatepass"))
        if ends:
            os.close(self.mouth)
        passed = meet("worker", self.source, self.target, self._begins)
        os.close(self.target)
        with open(self.ear, encoding="utf-8") as said:
            return passed, [json.loads(line) for line in said]

    def _begins(self):
        self.begun += 1


@pytest.mark.parametrize(
    "line",
    [
        "\n",
        "nonsense\n",
        "[" * 50_000 + "\n",
        "[" + hello().strip() + "]\n",
        TOLD,
        request("tools/list"),
        request("server/discover"),
        hello("2026-07-28"),
        hello("1999-01-01"),
        hello(None),
        hello(number=None),
        hello(number=True),
        hello(number=1.5),
        hello(number="\ud800"),
        hello(extra={}),
        hello(capabilities={"roots": True}),
        hello(capabilities={"roots": {"listChanged": 1}}),
        hello(capabilities={"experimental": {"x": True}}),
        hello(capabilities={"elicitation": {"form": True}}),
        hello(capabilities=[]),
        hello(clientInfo={"name": "test"}),
        hello(clientInfo={"name": "\ud800", "version": "1"}),
        hello(clientInfo={"name": "test", "version": 1}),
        hello(clientInfo="test"),
        hello(_meta={"progressToken": 1, "other": 2}),
        hello(_meta={"progressToken": None}),
        hello(_meta=None),
        hello().replace('"2.0"', '"1.0"'),
        hello().replace('"id"', '"ID"'),
        '{"jsonrpc":"2.0","id":0,"method":"initialize"}\n',
        '{"jsonrpc":"2.0","id":0,"method":"initialize","params":null}\n',
        '{"jsonrpc":"2.0","id":0,"result":{}}\n',
    ],
)
def test_an_unusual_beginning_is_left_to_the_sdk(line):
    passed, said = Pipes().meet(line, "and more\n")
    assert passed is not None and len(passed.lines) == 2
    assert passed.greeted is None and said == []


@pytest.mark.parametrize("text", [None, "", "<<<<<<< ours\n{}", "{}"])
def test_without_what_is_published_the_sdk_answers(tmp_path, monkeypatch, text):
    path = tmp_path / "published.json"
    if text is not None:
        path.write_text(text)
    monkeypatch.setattr("hypervisor.mcp.first_answers.PUBLISHED", path)
    passed, said = Pipes().meet(hello(), "and more\n")
    assert passed == Passed((hello(), "and more\n")) and said == []


@pytest.mark.parametrize(
    "line",
    [
        hello(number=1),
        request("tools/call", name="heartbeat", arguments={}),
        request("tools/list", cursor="x"),
        request("tools/list", _meta={"io.modelcontextprotocol/protocolVersion": "2026-07-28"}),
        request("ping", number=None),
        request("nobody/knows"),
        '{"jsonrpc":"2.0","id":0,"error":{}}\n',
        "{\n",
    ],
)
def test_the_sdk_is_told_all_that_it_has_to_know(line):
    pipes = Pipes()
    change = TOLD.replace("initialized", "roots/list_changed")
    passed, said = pipes.meet(hello(number="1"), TOLD, request("ping", 1), change, line, "la")
    assert passed == Passed((hello(number="1"), TOLD, change, line, "la"), "1")
    assert [each["id"] for each in said] == ["1", 1] and not pipes.begun


def test_a_session_begins_with_its_tools():
    pipes = Pipes()
    passed, said = pipes.meet(hello(), request("tools/list", 1), request("prompts/list", 2))
    assert passed is None and pipes.begun == 1
    assert said[2]["result"] == {"prompts": []}  # a worker's


def test_a_line_that_has_begun_is_waited_for():
    pipes = Pipes()
    found = []
    begun = "x" * 200_000

    os.write(pipes.mouth, (hello() + "{\n" + begun[:1000]).encode())
    reader = threading.Thread(target=lambda: found.append(pipes.meet(ends=False)), daemon=True)
    reader.start()
    for start in range(1000, len(begun), 50_000):
        os.write(pipes.mouth, begun[start : start + 50_000].encode())
    os.write(pipes.mouth, b"\nlater\n")
    wait_for(lambda: not reader.is_alive())
    os.close(pipes.mouth)
    passed = found[0][0]
    assert passed is not None and passed.lines[:3] == (hello(), "{\n", begun + "\n")
    left = os.read(pipes.source, 100).decode()
    assert "".join(passed.lines[3:]) + left == "later\n"


def test_a_client_that_does_not_listen_any_more_is_gone():
    pipes = Pipes()
    os.close(pipes.ear)
    os.write(pipes.mouth, hello().encode() + b"{\n")
    assert meet("worker", pipes.source, pipes.target, pipes._begins) is None
