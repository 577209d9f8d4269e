"""Connections that never send a complete request: other clients are not affected."""

from __future__ import annotations

import os
import resource
import socket
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx2
import pytest

from tests.mcp.conftest import Place, Served, wait_for

LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
HALF = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
FILES = 128  # what the server may have open
FLOOD = 300
PATIENCE = 180.0


class Flooded(Served):
    """`hv serve` with few files, and its log in a file."""

    def __init__(self, place):
        self.log = place.folder / "serve.log"
        with open(self.log, "wb") as log:
            super().__init__(place, stderr=log, preexec_fn=few_files)

    @property
    def address(self):
        host, port = self.url.split("/")[2].split(":")
        return host, int(port)

    def cpu(self):
        """Seconds of CPU so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def files(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def serves(self):
        with suppress(httpx2.HTTPError):
            return self.post(LIST, within=PATIENCE)[0] == 200
        return False

    @contextmanager
    def stays_calm(self):
        """The block must use little CPU and few lines of the log."""
        began, used = time.monotonic(), self.cpu()
        yield
        assert self.cpu() - used < 1 + (time.monotonic() - began) / 2
        assert self.log.stat().st_size < 20_000, self.log.read_text()[:2000]


def few_files():
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))


@pytest.fixture
def flooded(tmp_path):
    made = Flooded(Place(tmp_path))
    assert made.serves()  # what is loaded at the first request is loaded now
    yield made
    made.stop()


def test_half_sent_headers_keep_nobody_out(flooded):
    before = flooded.files()
    with flooded.stays_calm(), ExitStack() as strangers:
        for _ in range(FLOOD):
            stranger = socket.create_connection(flooded.address, timeout=PATIENCE)
            strangers.enter_context(stranger)
            with suppress(ConnectionError):  # already dropped for a later one
                stranger.sendall(HALF)
        assert flooded.serves()
        wait_for(lambda: flooded.files() <= before, PATIENCE)
        assert flooded.serves()


def test_a_client_that_was_served_may_not_keep_its_connection_with_half_a_header(flooded):
    with socket.create_connection(flooded.address, timeout=PATIENCE) as client:
        client.sendall(
            b"GET /other HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer "
            + flooded.token.encode()
            + b"\r\n\r\n"
        )
        answer = client.makefile("rb")
        wait_for(lambda: b"Not Found" in answer.readline(9), PATIENCE)
        client.sendall(HALF)
        assert answer.read() == b""


def test_requests_that_are_none_do_not_fill_the_log(flooded):
    with flooded.stays_calm():
        for _ in range(FLOOD):
            with socket.create_connection(flooded.address, timeout=PATIENCE) as stranger:
                stranger.sendall(b"nonsense\r\n\r\n")
                with suppress(ConnectionError):
                    stranger.recv(1 << 16)
        assert flooded.serves()
    assert flooded.log.read_text().count("Invalid HTTP request") == 1


def test_without_a_free_file_it_waits_and_says_so_once(flooded):
    server = flooded.process.pid
    with flooded.stays_calm():
        resource.prlimit(server, resource.RLIMIT_NOFILE, (3, FILES))
        with socket.create_connection(flooded.address, timeout=PATIENCE) as client:
            wait_for(lambda: "too many open files" in flooded.log.read_text(), PATIENCE)
            client.settimeout(3.5)  # some more tries
            with pytest.raises(TimeoutError):
                client.recv(1)
        resource.prlimit(server, resource.RLIMIT_NOFILE, (FILES, FILES))
        assert flooded.serves()
    assert flooded.log.read_text().count("too many open files") == 1
