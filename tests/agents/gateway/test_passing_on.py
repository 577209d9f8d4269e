"""Calls that pass through the gateway: what arrives on each side, and what is counted."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading

import pytest

from hypervisor.queue.sql import agent_sessions
from tests.agents.gateway.gateway_bench import AGENTS, HEADERS, KEY, GatewayBench
from tests.agents.real.model_server import ModelServer
from tests.agents.real.moves import Move, drop, say
from tests.torture.fleet import wait_for

ITEM = "item-7"
NUMBERS = re.compile(rb"\d+")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("wire", AGENTS)
def test_an_answer_is_the_same_as_without_the_gateway(gateway, model, wire, stream):
    if wire == "gemini" and not stream:
        pytest.skip("its path says whether it streams")
    model.script(ITEM, lambda turn: say("grüße " * 50, tokens=(1000, 200, 300)))
    direct = gateway.direct(wire, stream=stream)
    through = gateway.ask(gateway.session(AGENTS[wire]), wire, stream=stream)
    assert through.status == direct.status == 200
    # The scripted model numbers its answers; all else is the same byte for byte.
    assert NUMBERS.sub(b"0", through.body) == NUMBERS.sub(b"0", direct.body)
    assert len(through.body) == len(direct.body)
    assert through.headers["content-type"] == direct.headers["content-type"]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("wire", AGENTS)
def test_its_tokens_are_counted_and_priced(gateway, model, wire, stream):
    model.script(ITEM, lambda turn: say("hello", tokens=(1000, 200, 300)))
    session = gateway.session(AGENTS[wire])
    for _ in range(3):
        assert gateway.ask(session, wire, stream=stream).status == 200
    spent = gateway.spent(session)
    (row,) = gateway.hv.store.read(agent_sessions.sessions, task=session.task)
    read = 3000 if wire == "messages" else 2100  # the others count cached tokens as input, too
    assert row.tokens == (read, 600, 900)
    if wire != "chat":  # qwen has no price
        price = gateway.hv.agent_settings.profiles[AGENTS[wire]].price
        each = round((read * price.input + 600 * price.output + 900 * price.cached) / 3)
        assert (spent.cost_micros, spent.estimated) == (3 * each, True)


@pytest.mark.parametrize("wire", AGENTS)
def test_the_provider_gets_the_key_and_the_agent_never_does(gateway, model, wire):
    model.script(ITEM, lambda turn: say("hello"))
    session = gateway.session(AGENTS[wire])
    answer = gateway.ask(session, wire)
    (seen,) = model.bodies
    headers = {name.lower(): value for name, value in seen["headers"].items()}
    assert KEY in headers[HEADERS.get(wire, "authorization")]
    assert session.token not in json.dumps(seen)
    assert KEY.encode() not in answer.body and KEY not in str(answer.headers)


def test_each_piece_is_passed_on_at_once(gateway):
    """The provider sends its second piece only when the agent has received the first."""
    received = threading.Event()
    with SlowProvider(received) as provider:
        gateway.env["ANTHROPIC_BASE_URL"] = provider.url
        session = gateway.session("claude")
        connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60)
        connection.request("POST", "/anthropic/v1/messages", "{}", {"x-api-key": session.token})
        answer = connection.getresponse()
        assert answer.read1(100) == b"data: first\n\n"
        received.set()
        assert answer.read() == b"data: second\n\n"
        connection.close()


class SlowProvider:
    """Answers one call in two pieces."""

    def __init__(self, go_on: threading.Event) -> None:
        self._go_on = go_on
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.left = threading.Event()  # the gateway has closed the connection

    def __enter__(self) -> SlowProvider:
        self._thread = threading.Thread(target=self._answer, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._listening.close()
        self._go_on.set()
        self._thread.join(30)

    def _answer(self) -> None:
        connection, _ = self._listening.accept()
        with connection:
            connection.recv(65_536)
            connection.sendall(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
                b"transfer-encoding: chunked\r\n\r\nd\r\ndata: first\n\n\r\n"
            )
            connection.settimeout(0.02)
            while not self._go_on.is_set():
                try:
                    if not connection.recv(1):
                        return self.left.set()
                except TimeoutError:
                    continue
            connection.sendall(b"e\r\ndata: second\n\n\r\n0\r\n\r\n")
            return None


def test_an_agent_that_leaves_ends_the_call_at_the_provider(gateway):
    go_on = threading.Event()
    with SlowProvider(go_on) as provider:
        gateway.env["ANTHROPIC_BASE_URL"] = provider.url
        session = gateway.session("claude")
        connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60)
        connection.request(
            "POST", "/anthropic/v1/messages", "x" * 400, {"x-api-key": session.token}
        )
        answer = connection.getresponse()
        assert answer.read1(100)
        answer.close()
        connection.close()
        assert provider.left.wait(30), "the provider would go on, and be paid"
    wait_for(lambda: gateway.spent(session).tokens > 0, "the count of what was begun", 30)
    assert gateway.spent(session).tokens == 100 + 1  # estimated: the request, and one event


def test_a_provider_that_is_down_is_reported_as_such(gateway, model):
    model.go_down()
    session = gateway.session("claude")
    answer = gateway.ask(session)
    reason = "Hypervisor: cannot connect to the provider: Connection refused"
    assert (answer.status, answer.message) == (502, reason)
    model.come_up()
    model.script(ITEM, lambda turn: say("hello"))
    assert gateway.ask(session).status == 200


def test_a_broken_answer_breaks_at_the_agent_too(gateway, model):
    model.script(ITEM, [drop(times=9)])
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        gateway.ask(gateway.session("claude"))


def test_a_connection_that_the_provider_has_closed_is_replaced(gateway, model):
    model.script(ITEM, lambda turn: say("hello"))
    session = gateway.session("claude")
    assert gateway.ask(session).status == 200
    model.go_down()  # resets the connection that the gateway keeps
    model.come_up()
    assert gateway.ask(session).status == 200


def test_a_websocket_gets_426_and_other_calls_404(gateway, model):
    session = gateway.session("codex")
    asked = []
    for method, path, more in (
        ("GET", "/openai/responses", {"upgrade": "websocket", "connection": "upgrade"}),
        ("POST", "/openai/fine_tuning/jobs", {}),
        ("GET", "/openai/files", {}),
        ("POST", "/openai/../responses/x", {}),
        ("POST", "/anthropic/v1/messages", {}),
        ("HEAD", "/openai", {}),
    ):
        connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60)
        connection.request(
            method, path, headers={"authorization": f"Bearer {session.token}", **more}
        )
        asked.append(connection.getresponse().status)
        connection.close()
    assert asked == [426, 404, 404, 404, 403, 200]
    assert not model.bodies, "none of them may reach the provider"


def test_a_list_of_models_and_a_count_cost_nothing(gateway, model):
    session = gateway.session("codex")
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60)
    head = {"authorization": f"Bearer {session.token}"}
    connection.request("GET", "/openai/models?client_version=1", headers=head)
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())["object"]) == (200, "list")
    connection.close()
    assert gateway.spent(session).tokens == 0


def test_an_answer_without_usage_is_estimated(gateway: GatewayBench, model: ModelServer) -> None:
    """It was paid for, so it counts."""
    model.script(ITEM, [Move(garbled=True, times=9)])
    session = gateway.session("claude")
    assert gateway.ask(session).status == 200
    request = len(json.dumps({"stream": True, **_body()}))
    assert gateway.spent(session).tokens == request // 4 + 2


def _body():
    from tests.agents.real.test_model_server import ASKED

    return ASKED["messages"][1]
