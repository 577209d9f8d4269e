"""The proxy of an attempt: what it passes on, what it refuses, and what it keeps of that."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import contextmanager

import pytest

from hypervisor.runs.sandbox.plan import Reach, allows
from hypervisor.runs.sandbox.proxy import Proxy, serve_forever

PAGE = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npage"


@pytest.mark.parametrize(
    ("rule", "host", "port", "expected"),
    [
        ("pypi.org", "pypi.org", 443, True),
        ("pypi.org", "PyPI.org.", 443, True),
        ("pypi.org", "evil-pypi.org", 443, False),
        ("pypi.org", "files.pypi.org", 443, False),
        ("*.npmjs.org", "registry.npmjs.org", 443, True),
        ("*.npmjs.org", "npmjs.org", 443, False),
        ("*.npmjs.org", "evilnpmjs.org", 443, False),
        ("a.example:8443", "a.example", 8443, True),
        ("a.example:8443", "a.example", 443, False),
    ],
)
def test_rules(rule, host, port, expected):
    assert allows([rule], host, port) is expected


@contextmanager
def listening(handle):
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve_forever, args=(server, handle), daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


def page(client: socket.socket, seen: list[bytes] | None = None) -> None:
    request = client.recv(4096)
    if seen is not None:
        seen.append(request)
    client.sendall(PAGE)


def ask(port: int, request: str) -> bytes:
    """The whole answer."""
    with socket.create_connection(("127.0.0.1", port), 10) as client:
        client.sendall(request.encode())
        client.shutdown(socket.SHUT_WR)
        pieces = []
        while piece := client.recv(4096):
            pieces.append(piece)
        return b"".join(pieces)


@pytest.fixture
def denials(tmp_path):
    return tmp_path / "denials.jsonl"


def test_a_plain_request_is_passed_on_without_what_is_for_the_proxy(denials):
    seen: list[bytes] = []
    with listening(lambda client: page(client, seen)) as port:
        proxy = Proxy(Reach((f"127.0.0.1:{port}",)), str(denials))
        with listening(proxy.serve) as at:
            head = (
                f"GET http://127.0.0.1:{port}/a?b=c HTTP/1.1\r\nHost: x\r\nProxy-Secret: s\r\n\r\n"
            )
            assert ask(at, head).endswith(b"page")
    (request,) = seen
    assert request.startswith(b"GET /a?b=c HTTP/1.1\r\n") and b"Proxy-Secret" not in request
    assert b"Connection: close" in request, "the next request may be for another host"
    assert not denials.exists()


def test_a_tunnel_passes_bytes_both_ways(denials):
    with listening(page) as port:
        proxy = Proxy(Reach((f"127.0.0.1:{port}",)), str(denials))
        with listening(proxy.serve) as at:
            head = f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n"
            answer = ask(at, head + "GET / HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ") and answer.endswith(b"page")


@pytest.mark.parametrize(
    "request_text",
    [
        "CONNECT evil.example:443 HTTP/1.1\r\n\r\n",
        "GET http://evil.example:443/ HTTP/1.1\r\nHost: allowed.example\r\n\r\n",
        "CONNECT allowed.example@evil.example:443 HTTP/1.1\r\n\r\n",
    ],
)
def test_a_refusal_is_a_sentence_and_is_kept(denials, request_text):
    proxy = Proxy(Reach(("allowed.example",)), str(denials))
    with listening(proxy.serve) as at:
        answer = ask(at, request_text).decode()
    assert answer.startswith("HTTP/1.1 403 Forbidden\r\n")
    assert "does not allow connections to evil.example:443" in answer
    (line,) = denials.read_text().splitlines()
    assert json.loads(line)["host"] == "evil.example" and json.loads(line)["port"] == 443


@pytest.mark.parametrize(
    "text", ["nonsense\r\n\r\n", "GET /\r\n\r\n", "GET ftp://a/ HTTP/1.1\r\n\r\n"]
)
def test_nonsense_is_refused(denials, text):
    with listening(Proxy(Reach(("a",)), str(denials)).serve) as at:
        assert ask(at, text).startswith(b"HTTP/1.1 400 ")


def test_connections_pass_through_the_proxy_of_the_user(denials):
    seen: list[bytes] = []

    def upstream(client: socket.socket) -> None:
        seen.append(client.recv(4096))
        client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        page(client)

    with listening(upstream) as port:
        reach = Reach(("far.example",), upstream=f"http://me:secret@127.0.0.1:{port}")
        with listening(Proxy(reach, str(denials)).serve) as at:
            request = "CONNECT far.example:443 HTTP/1.1\r\n\r\nhello"
            assert ask(at, request).endswith(b"page")
    assert seen[0].startswith(b"CONNECT far.example:443 ")
    assert b"Proxy-Authorization: Basic bWU6c2VjcmV0" in seen[0]
