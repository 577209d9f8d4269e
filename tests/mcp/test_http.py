"""Over HTTP: who may connect, what is refused, and that the server keeps serving."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
from pathlib import Path

import anyio
import pytest

from hypervisor import NewTask
from tests.mcp.conftest import Place, Served, call, refused

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    made = Served(Place(tmp_path_factory.mktemp("served")))
    yield made
    made.stop()


def tool(name, **arguments):
    params = {"name": name, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


@pytest.fixture(autouse=True)
def still_serves(served):
    """Check that the server still works after a test."""
    yield
    status, text = served.post(LIST)
    assert status == 200 and "claim_next_task" in text
    assert served.process.poll() is None


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": None}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": "Bearer"}, 401),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1.evil.example"}, 403),
        ({"Origin": "http://localhost@evil.example:80"}, 403),
        ({"Host": "evil.example"}, 421),
        ({"Host": "evil.example:8424"}, 421),
        ({"Host": "127.0.0.1.evil.example"}, 421),
        ({"Host": "localhost.evil.example:1"}, 421),
    ],
)
def test_strangers_are_refused(served, headers, status):
    assert served.post(LIST, **headers)[0] == status


@pytest.mark.parametrize(
    "headers", [{}, {"Origin": "http://127.0.0.1:3000"}, {"Host": "localhost:1"}]
)
def test_who_has_the_token_is_let_in(served, headers):
    assert served.post(LIST, **headers)[0] == 200


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"nonsense",
        b"\xff\xfe\x00",
        b'{"jsonrpc":"2.0"}',
        b"[" * 5000,
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":7}',
    ],
)
def test_malformed_bodies_are_refused(served, body):
    status, text = served.post(body)
    assert status in (200, 202, 400) and "Traceback" not in text
    if status == 200:
        assert "error" in text


def test_a_body_that_is_too_large_is_refused(served):
    status, _ = served.post(tool("create_task", title="x", body="y" * (5 << 20)))
    assert status == 413


def test_a_body_that_never_ends_keeps_nobody_waiting(served):
    host, port = served.url.split("/")[2].split(":")
    with socket.create_connection((host, int(port))) as slow:
        slow.sendall(
            b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n"
            b"Authorization: Bearer " + served.token.encode() + b"\r\n\r\n{"
        )
        assert served.post(LIST)[0] == 200


def test_other_paths_are_refused(served):
    import httpx2

    other = served.url.replace("/mcp", "/other")
    headers = {"Authorization": f"Bearer {served.token}"}
    assert httpx2.get(other, headers=headers).status_code == 404


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("no_such_tool", {}),
        ("create_task", {"tasks": [{"title": "t"}] * 10_000}),
        ("spawn_parallel_tasks", {"tasks": ["t"] * 10_000}),
        ("cancel_task", {"ids": ["x"] * 10_000}),
        ("claim_next_task", {"limit": 10_000}),
        ("list_tasks", {"states": ["x"] * 10_000}),
        ("claim_next_task", {"capabilities": [str(n) for n in range(10_000)]}),
        ("get_task", {"id": "../../etc/passwd"}),
        ("wait_for_events", {"cursor": "c", "timeout": 4_000}),
        ("wait_for_events", {"cursor": "", "timeout": 0}),
        ("create_task", {"title": "nul \0"}),
        ("complete_task", {"token": "x" * 100_000}),
    ],
)
def test_bad_arguments_are_refused_in_few_words(served, name, arguments):
    status, text = served.post(tool(name, **arguments))
    assert status == 200
    answer = json.loads(text.split("data: ", 1)[1].splitlines()[0])["result"]
    assert answer["isError"], answer
    assert len(answer["content"][0]["text"]) < 1_200
    assert "Traceback" not in text and "pydantic" not in text


def test_the_token_lies_beside_the_store_for_its_owner_alone(served):
    found = os.stat(served.token_file)
    assert stat.S_IMODE(found.st_mode) == 0o600
    assert os.path.dirname(served.token_file) == os.path.dirname(served.place.path)
    words = subprocess.run(
        ["ps", "-p", str(served.process.pid), "-o", "args="], capture_output=True, text=True
    )
    assert served.token not in words.stdout
    environment = Path(f"/proc/{served.process.pid}/environ").read_bytes()
    assert served.token.encode() not in environment


def test_the_port_is_open_to_this_machine_only(served):
    port = int(served.url.split(":")[2].split("/")[0])
    listening = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    addresses = [w[1] for w in listening if w[3] == "0A" and w[1].endswith(f":{port:04X}")]
    assert addresses == [f"0100007F:{port:04X}"]


def test_every_call_that_names_a_claim_renews_it(served):
    with served.place.open() as hv:
        task = hv.add([NewTask("Look")], "renewed").ids[0]

        async def work():
            async with served.client() as client:
                found = await call(client, "claim_next_task", caller="web", batch="renewed")
                token = found["tasks"][0]["token"]
                ends = []
                for name, arguments in (
                    ("append_receipt", {"text": "looked"}),
                    ("get_task", {"id": token}),
                    ("heartbeat", {"tokens": [token]}),
                ):
                    ends.append(hv.show(task).detail.task.lease_until)
                    await anyio.sleep(0.01)
                    extra = {} if name in ("get_task", "heartbeat") else {"token": token}
                    await call(client, name, **arguments, **extra)
                ends.append(hv.show(task).detail.task.lease_until)
                assert sorted(set(ends)) == ends, ends
                await call(client, "complete_task", token=token, summary="fine")
                assert "has ended" in await refused(
                    client, "append_receipt", text="late", token=token
                )

        anyio.run(work)
        assert hv.show(task).detail.task.state == "done"


def test_a_file_that_others_can_read_is_not_used(tmp_path):
    place = Place(tmp_path)
    (tmp_path / "serve.token").write_text("x" * 43)
    (tmp_path / "serve.token").chmod(0o644)
    done = place.run("serve", "--port", "0")
    assert done.returncode == 7 and "other users can read" in done.stderr
