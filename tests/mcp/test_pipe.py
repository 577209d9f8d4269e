"""`hv mcp` as a client sees it: every line is answered once, whatever it contains."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from hypervisor.mcp.pipe import MAX_LINE_LENGTH, Lines, Requests
from tests.mcp.conftest import wait_for
from tests.mcp.talk import INITIALIZED, initialize, request, talk, tool
from tests.support.mcp_servers import mcp_servers

HEAVY = ("mcp", "mcp_types", "pydantic", "anyio", "asyncio", "starlette", "uvicorn", "jinja2")


def test_all_at_once_is_answered_once(place):
    """A client need not wait for an answer before its next request."""
    asked = [initialize(), INITIALIZED, request("tools/list", 1), request("ping", 2)]
    with talk(place) as client:
        client.send(*asked, tool("list_tasks", 3), request("ping", 4), request("prompts/list", 5))
        answers = [client.read() for _ in range(6)]
        assert sorted(answer["id"] for answer in answers) == list(range(6))
        assert all("result" in answer for answer in answers)
        assert client.leave() == (b"", 0)


def test_what_was_asked_before_the_end_is_answered(place):
    """Even if there is no server yet, and the last line has no newline."""
    with talk(place) as client:
        client.send(initialize(), INITIALIZED, request("tools/list", 1).rstrip("\n"))
        rest, code = client.leave()
        assert [json.loads(line)["id"] for line in rest.splitlines()] == [0, 1] and code == 0


def test_a_client_that_only_asks_first_questions_leaves_nothing_behind(place):
    with talk(place) as client:
        client.greet()
        client.ask(request("tools/list", 1))
        assert client.leave() == (b"", 0)
    assert not os.path.exists(place.path)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_it_ends_when_told_to(place, number):
    with talk(place) as client:
        client.ask(initialize())
        client.pipe.send_signal(number)
        assert client.pipe.wait(180) == 0


def test_the_pipe_loads_next_to_nothing():
    """There is one per client: it must be small and fast."""
    program = (
        "import sys, hypervisor.mcp.pipe; "
        "print({name.split('.')[0] for name in sys.modules} & set(sys.argv[1:]))"
    )
    run = subprocess.run(
        [sys.executable, "-I", "-c", program, *HEAVY], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "set()"


HALF = "half \ud800 a character"


def test_what_cannot_be_read_is_answered_and_the_session_continues(place):
    cases = [
        (request("tools/call", name="remember", arguments={"text": HALF}), 7, "surrogate"),
        (request("tools/call", name=HALF, arguments={}), 7, "surrogate"),
        (request(HALF), 7, "surrogate"),
        (request("ping", HALF), None, "surrogate"),
        (request("ping", x=json.loads("[" * 400 + "]" * 400)), 7, "nested too deeply"),
        ("[" * 50_000 + "\n", None, "nested too deeply"),
        ('{"jsonrpc":"2.0","id":7,"method"\n', None, "not valid JSON"),
        ("\udcff\udcfe\n", None, "not valid JSON"),  # no UTF-8 either
        ("#{}\n", None, "not valid JSON"),  # messages from the server to the pipe begin like this
        ("[1]\n", None, "not a JSON-RPC"),
        ('"text"\n', None, "not a JSON-RPC"),
        ("{}\n", None, "not a JSON-RPC"),
        ('{"jsonrpc":"2.0","id":7,"method":7}\n', 7, "not a JSON-RPC"),
        ('{"jsonrpc":"1.0","id":7,"method":"ping"}\n', 7, "not a JSON-RPC"),
        ('{"jsonrpc":"2.0","id":7,"method":"ping","params":[1]}\n', 7, "not a JSON-RPC"),
    ]
    with talk(place) as client:
        client.greet()
        for line, number, message in cases:
            answer = client.ask(line)
            assert answer["id"] == number and message in answer["error"]["message"], (line, answer)
            assert client.ask(request("ping", 8))["id"] == 8


def test_it_can_be_the_first_line(place):
    with talk(place) as client:
        assert client.ask("nonsense\n")["error"]["code"] == -32700
        assert client.greet()["id"] == 0


def test_what_wants_no_answer_gets_none(place):
    with talk(place) as client:
        client.greet()
        client.send(
            "\n",
            "  \n",
            '{"jsonrpc":"2.0","method":"notifications/\\ud800"}\n',
            '{"jsonrpc":"2.0","id":7,"result":"\\ud800"}\n',
            '{"jsonrpc":"2.0","id":7,"error":1}\n',
        )
        assert client.ask(request("ping", 8))["id"] == 8


def test_a_big_message_arrives_and_one_that_is_too_big_is_refused(place):
    with talk(place) as client:
        client.greet()
        client.call("create_task", title="Look", body="x" * 900_000)
        client.send('{"id": 1, "method": "')
        for _ in range(MAX_LINE_LENGTH // (1 << 20) + 1):
            client.send("x" * (1 << 20))
        client.send('"}\n')
        assert "longer than 64 MB" in client.read()["error"]["message"]
        assert client.call("list_tasks")["tasks"]


def test_a_client_that_never_reads_holds_nobody_up(place):
    with talk(place) as deaf, talk(place) as other:
        deaf.greet()
        for number in range(400):  # far more than a pipe and a socket hold
            deaf.send(request("tools/list", number))
        other.greet()
        for number in range(3):
            assert other.ask(request("tools/list", number))["result"]["tools"]
        [server] = mcp_servers(place.folder)
        with open(f"/proc/{server}/statm") as statm:
            assert int(statm.read().split()[1]) * 4096 < 300 << 20


@pytest.mark.parametrize(
    ("words", "env", "code", "message"),
    [
        (["--tools", "none"], {}, 2, "invalid choice"),
        (["--store", ""], {}, 2, "--store is empty"),
        ([], {"HV_PULL": "many"}, 2, "must be numbers"),
        (["--store", "mysql://x"], {}, 2, "unknown kind of store"),
    ],
)
def test_what_is_wrong_with_the_start_is_reported(place, words, env, code, message):
    done = place.start("mcp", *words, env=env, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    _, error = done.communicate(timeout=180)
    assert done.returncode == code and message in error.decode()


def test_a_store_that_cannot_be_opened_is_reported(place):
    path = place.folder / "other.db"
    path.write_text("this is no database" * 100)
    with talk(place, env={"HYPERVISOR_STORE": str(path)}) as client:
        client.send(initialize())
        assert client.pipe.wait(180) != 0
        assert client.pipe.stderr.read().startswith(b"hv: ")


class TestLines:
    def test_it_cuts_at_newlines_alone(self):
        lines = Lines()
        assert lines.add(b"a") == [] and lines.add(b"b\r\nc\x0bd\n\ne") == [b"ab\r", b"c\x0bd", b""]
        assert lines.rest() == [b"e"] and len(lines) == 1


class TestRequests:
    """What is sent to a new server, and what the client is told."""

    def asked(self, *lines):
        requests = Requests()
        requests.repeatable = frozenset({"get_task"})
        for line in lines:
            requests.asked(line.strip().encode())
        return requests

    def test_a_handshake_is_repeated_and_its_answer_kept_from_the_client(self):
        requests = self.asked(initialize(), INITIALIZED)
        assert requests.answered(b'{"jsonrpc":"2.0","id":0,"result":{}}')
        again, errors = requests.hand_over()
        assert again == [initialize().strip().encode(), INITIALIZED.strip().encode()]
        assert errors == []
        assert not requests.answered(b'{"jsonrpc":"2.0","id":0,"result":{}}')
        assert requests.answered(b'{"jsonrpc":"2.0","id":0,"result":{}}')

    def test_one_that_was_not_answered_is_answered_once(self):
        requests = self.asked(initialize())
        again, _ = requests.hand_over()
        assert again == [initialize().strip().encode()]
        assert requests.answered(b'{"jsonrpc":"2.0","id":0,"result":{}}')

    def test_calls_that_may_have_changed_something_get_an_error(self):
        calls = [tool("get_task", 1), tool("create_task", "two"), request("tools/list", 3)]
        requests = self.asked(*calls)
        again, errors = requests.hand_over()
        assert again == [calls[0].strip().encode(), calls[2].strip().encode()]
        [error] = map(json.loads, errors)
        assert error["id"] == "two" and "may or may not" in error["error"]["message"]
        assert requests.hand_over() == (again, [])

    def test_what_was_answered_or_cancelled_is_forgotten(self):
        cancel = {"method": "notifications/cancelled", "params": {"requestId": "1"}}
        requests = self.asked(tool("get_task", 1), tool("get_task", "1"), json.dumps(cancel))
        assert requests.answered(b'{"jsonrpc":"2.0","id":1,"result":{}}')
        assert requests.hand_over() == ([], [])

    def test_questions_of_the_server_are_passed_on(self):
        requests = self.asked(request("tools/list", 1))
        assert requests.answered(b'{"jsonrpc":"2.0","id":1,"method":"roots/list"}')
        assert len(requests.hand_over()[0]) == 1


def test_a_pipe_ends_with_its_client(place):
    """Its stdin ends while its stdout is not read."""
    with talk(place) as client:
        client.greet()
        for number in range(100):
            client.send(request("tools/list", number))
        client.pipe.stdin.close()
        wait_for(lambda: client.pipe.poll() is not None)
        client.pipe.stdin = None

    @pytest.mark.parametrize("params", [[], "x", {"name": ["x"]}, {"name": {}}, {"name": None}])
    def test_a_call_of_no_tool_is_not_repeated(self, params):
        requests = Requests()
        line = json.dumps({"id": 1, "method": "tools/call", "params": params}).encode()
        requests.asked(line)
        again, errors = requests.hand_over()
        assert line not in again and len(errors) == 1
