"""The scripted model itself: what it answers on each wire, how faults look, what it counts."""

from __future__ import annotations

import http.client
import json
from typing import Any

import pytest

from tests.agents.real.model_server import ModelServer
from tests.agents.real.moves import broken, call, drop, garbled, refuse, result, say, shell

TOOL = {"type": "object", "properties": {"token": {}}}
ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "messages": (
        "/v1/messages",
        {
            "messages": [{"role": "user", "content": "see item-7"}],
            "tools": [{"name": "mcp__hypervisor__complete_task", "input_schema": TOOL}],
        },
    ),
    "responses": (
        "/v1/responses",
        {
            "input": [{"type": "message", "role": "user", "content": "see item-7"}],
            "tools": [
                {
                    "type": "namespace",
                    "name": "mcp__hypervisor",
                    "tools": [{"type": "function", "name": "complete_task", "parameters": TOOL}],
                }
            ],
        },
    ),
    "gemini": (
        "/v1beta/models/gemini-x:streamGenerateContent?alt=sse",
        {
            "contents": [{"role": "user", "parts": [{"text": "see item-7"}]}],
            "tools": [{"functionDeclarations": [{"name": "mcp_hypervisor_complete_task"}]}],
        },
    ),
    "chat": (
        "/v1/chat/completions",
        {
            "messages": [{"role": "user", "content": "see item-7"}],
            "tools": [{"type": "function", "function": {"name": "hypervisor-complete_task"}}],
        },
    ),
}


def ask(server: ModelServer, wire: str, **more: Any) -> tuple[int, dict[str, str], str]:
    path, body = ASKED[wire]
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=180)
    try:
        connection.request("POST", path, json.dumps({"stream": True, **body, **more}))
        answer = connection.getresponse()
        return answer.status, dict(answer.headers), answer.read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize("wire", ASKED)
class TestEachWire:
    def test_calls_the_tool_that_is_offered_under_another_name(self, model, wire):
        model.script("item-[0-9]+", [call("complete_task", {"token": "abc"})])
        status, _, text = ask(model, wire)
        assert status == 200
        assert "complete_task" in text
        assert "abc" in text
        assert model.asked[0].key == "item-7"
        assert model.dealt("item-7") == (1000, 20, 0, 1)

    def test_says_what_it_cannot_call(self, model, wire):
        model.script("item-7", [shell("ls")])
        assert "NO SUCH TOOL: shell" in ask(model, wire)[2]

    def test_gives_a_structured_result_as_text_where_no_tool_is_made_for_it(self, model, wire):
        model.script("item-7", [result({"status": "completed"})])
        assert "completed" in ask(model, wire)[2]

    def test_refuses_so_many_times_and_counts_nothing(self, model, wire):
        model.script("item-7", [refuse(429, times=2, retry_after=5), say("well")])
        assert [ask(model, wire)[0] for _ in range(3)] == [429, 429, 200]
        assert model.dealt().replies == 1
        assert [asked.move.status for asked in model.asked] == [429, 429, 0]

    def test_tells_when_to_come_again(self, model, wire):
        model.script("item-7", [refuse(429, retry_after=5)])
        assert ask(model, wire)[1]["retry-after"] == "5"

    def test_tells_a_date_to_come_again(self, model, wire):
        date = "Tue, 17 Nov 2026 09:10:00 GMT"
        model.script("item-7", [refuse(429, retry_after=date)])
        assert ask(model, wire)[1]["retry-after"] == date

    @pytest.mark.parametrize("status", [402, 403])
    def test_refuses_with_a_reason(self, model, wire, status):
        model.script("item-7", [refuse(status, error="not on your plan")])
        found, _, text = ask(model, wire)
        assert found == status and "not on your plan" in text

    def test_sends_what_is_not_json(self, model, wire):
        model.script("item-7", [garbled(), say("well")])
        status, _, text = ask(model, wire)
        assert status == 200
        lines = [line.removeprefix("data: ") for line in text.split("\n") if line]
        with pytest.raises(ValueError):
            json.loads(lines[0])
        assert "well" in ask(model, wire)[2]

    def test_sends_a_long_answer(self, model, wire):
        model.script("item-7", [say("x" * (5 << 20))])
        assert len(ask(model, wire)[2]) > 5 << 20

    def test_breaks_off(self, model, wire):
        model.script("item-7", [drop(), say("well")])
        with pytest.raises((http.client.HTTPException, OSError)):
            ask(model, wire)
        assert "well" in ask(model, wire)[2]

    def test_fails_inside_an_answer_that_began_well(self, model, wire):
        model.script("item-7", [broken(), say("well")])
        status, _, text = ask(model, wire)
        assert status == 200
        assert "error" in text
        assert "well" not in text


def test_continues_from_the_history(model):
    """A resumed session does not start over."""
    model.script("item-7", [shell("ls"), say("the second")])
    history = [
        {"role": "user", "content": "see item-7"},
        {"role": "assistant", "content": [{"type": "text", "text": "the first"}]},
        {"role": "user", "content": "go on"},
    ]
    assert "the second" in ask(model, "messages", messages=history)[2]


def test_reads_the_answers_of_tools(model):
    model.script("item-7", lambda turn: say(f"{turn.calls[-1].name} told {turn.last}"))
    history = [
        {"role": "user", "content": "see item-7"},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "1", "name": "x", "input": {}}],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "42"}]},
    ]
    assert "x told 42" in ask(model, "messages", messages=history)[2]


def test_requests_without_tools_are_not_part_of_a_conversation(model):
    model.script("item-7", [say("well")])
    assert "ok" in ask(model, "messages", tools=[])[2]
    assert not model.asked


def test_a_websocket_is_refused(model):
    connection = http.client.HTTPConnection(model.url.removeprefix("http://"), timeout=180)
    connection.request("GET", "/v1/responses", headers={"Upgrade": "websocket"})
    assert connection.getresponse().status == 426
    connection.close()


def test_a_server_that_is_down_refuses_until_it_comes_up():
    with ModelServer(down=True) as server:
        server.script("item-7", [say("well")])
        with pytest.raises(ConnectionRefusedError):
            ask(server, "messages")
        server.come_up()
        assert "well" in ask(server, "messages")[2]


def test_a_server_that_goes_down_resets_what_is_open_and_keeps_its_address(model):
    model.script("item-7", [say("well")])
    connection = http.client.HTTPConnection(model.url.removeprefix("http://"), timeout=180)
    path, body = ASKED["messages"]
    connection.request("POST", path, json.dumps(body))
    connection.getresponse().read()
    address = model.url
    model.go_down()
    with pytest.raises((http.client.HTTPException, OSError)):
        connection.request("POST", path, json.dumps(body))
        connection.getresponse()
    connection.close()
    with pytest.raises(ConnectionRefusedError):
        ask(model, "messages")
    model.come_up()
    assert model.url == address and "well" in ask(model, "messages")[2]
