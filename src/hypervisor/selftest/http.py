"""Hostile requests to `hv serve` and the dashboard: refused, and the servers keep answering."""

from __future__ import annotations

import json
import select
import socket
import subprocess
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from urllib.parse import urlsplit

from hypervisor.core.records import NamedTuple
from hypervisor.selftest.part import Figures, Setting, Skipped, Violation, ensure
from hypervisor.selftest.project import Project

START = 60.0  # seconds until a server must listen
ANSWER = 10.0
IDLE = 40  # connections that are opened and say nothing
REFUSED = range(400, 500)


class Server(NamedTuple):
    name: str
    host: str
    port: int
    path: str
    token: str  # "" if it takes no bearer token


def run(setting: Setting) -> Figures:
    if setting.kind != "sqlite":
        raise Skipped("the same with either database; run with the default store")
    folder = setting.folder / "http"
    folder.mkdir()
    figures = {"servers": 0, "hostile requests": 0}
    with ExitStack() as stack:
        project = stack.enter_context(closing(Project(folder)))
        for words in (("serve", "--port", "0"), ("dashboard", "--no-open", "--port", "0")):
            process = project.start(*words, "--json")
            stack.callback(process.wait)
            stack.callback(process.terminate)
            server = _listening(process, words[0])
            figures["hostile requests"] += _attack(server)
            figures["servers"] += 1
            setting.tell(f"{figures['hostile requests']} hostile requests")
    return figures


def _listening(process: subprocess.Popen[str], name: str) -> Server:
    assert process.stdout is not None
    if not select.select([process.stdout], [], [], START)[0]:
        raise Violation(f"{name} did not start within {START:g} s")
    line = process.stdout.readline()
    ensure(line, f"{name} did not start")
    answer = json.loads(line)
    url = urlsplit(answer["url"])
    token = Path(answer["token_file"]).read_text().strip() if "token_file" in answer else ""
    return Server(name, url.hostname or "", url.port or 0, url.path or "/", token)


def _attack(server: Server) -> int:
    own = f"{server.host}:{server.port}"
    bearer = f"Authorization: Bearer {server.token}\r\n" if server.token else ""
    hostile = {
        "without a token": _request(server, own),
        "with a wrong token": _request(server, own, "Authorization: Bearer wrong\r\n"),
        "under another host name": _request(server, "evil.example", bearer),
        "from another site": _request(server, own, f"{bearer}Origin: http://evil.example\r\n"),
        "out of the folder": f"GET /../../../etc/passwd HTTP/1.1\r\nHost: {own}\r\n\r\n".encode(),
        "that is not HTTP": b"\x00\xff\x16\x03\x01 nonsense\r\n\r\n",
        "with a huge header": _request(server, own, f"{bearer}X-Big: {'x' * 1_000_000}\r\n"),
        "with two hosts": _request(server, own, f"Host: evil.example\r\n{bearer}"),
    }
    for name, request in hostile.items():
        status, text = _send(server, request)
        # A server may also just hang up.
        ensure(not status or status in REFUSED, f"{server.name}: a request {name} got {status}")
        ensure(b"root:" not in text, f"{server.name}: a request {name} read a file")
        _check_alive(server, own, name)
    with ExitStack() as stack:
        for _ in range(IDLE):
            stack.enter_context(socket.create_connection((server.host, server.port), ANSWER))
        _check_alive(server, own, f"{IDLE} silent connections")
    return len(hostile) + IDLE


def _check_alive(server: Server, own: str, after: str) -> None:
    status, _ = _send(server, _request(server, own))
    ensure(status == 401 or status in (302, 303, 403), f"{server.name} died of {after}: {status}")


def _request(server: Server, host: str, headers: str = "") -> bytes:
    body = '{"jsonrpc": "2.0", "id": 1, "method": "ping"}'
    lines = (
        f"POST {server.path} HTTP/1.1\r\nHost: {host}\r\n{headers}"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        f"Connection: close\r\n\r\n{body}"
    )
    return lines.encode()


def _send(server: Server, request: bytes) -> tuple[int, bytes]:
    """The status and the beginning of the answer; 0 if it hung up."""
    answer = b""
    with (
        suppress(ConnectionError),
        socket.create_connection((server.host, server.port), ANSWER) as line,
    ):
        with suppress(OSError):  # it may hang up before it has read everything
            line.sendall(request)
            line.shutdown(socket.SHUT_WR)
        deadline = time.monotonic() + ANSWER
        while len(answer) < 4096 and time.monotonic() < deadline:
            piece = line.recv(4096)
            if not piece:
                break
            answer += piece
    words = answer.split(b" ", 2)
    return (int(words[1]) if len(words) > 1 and words[1].isdigit() else 0), answer
