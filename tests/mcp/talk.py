"""A client that writes lines to a real `hv mcp` and reads what comes back."""

from __future__ import annotations

import fcntl
import json
import subprocess
import termios
from contextlib import contextmanager
from pathlib import Path

INITIALIZED = '{"jsonrpc":"2.0","method":"notifications/initialized"}\n'


def request(method, number=7, **params):
    message = {"jsonrpc": "2.0", "id": number, "method": method}
    return json.dumps({**message, "params": params} if params else message) + "\n"


def initialize(number=0):
    client = {"clientInfo": {"name": "test", "version": "1"}, "capabilities": {"roots": {}}}
    return request("initialize", number, protocolVersion="2025-06-18", **client)


def tool(name, number=7, /, **arguments):
    return request("tools/call", number, name=name, arguments=arguments)


class Talk:
    def __init__(self, place, profile="all", **more):
        self.pipe = place.start(
            "mcp",
            "--tools",
            profile,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **more,
        )

    @property
    def pid(self):
        return self.pipe.pid

    def send(self, *lines):
        self.pipe.stdin.write("".join(lines).encode("utf-8", "surrogateescape"))
        self.pipe.stdin.flush()

    def is_passed_on(self):
        """Whether the pipe has read and passed on all that was sent: it waits for more."""
        left = fcntl.ioctl(self.pipe.stdin, termios.FIONREAD, bytes(4))
        state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        return not any(left) and state == "S"

    def read(self):
        line = self.pipe.stdout.readline()
        assert line, self.pipe.stderr.read().decode()
        return json.loads(line)

    def ask(self, line):
        self.send(line)
        return self.read()

    def greet(self):
        answer = self.ask(initialize())
        self.send(INITIALIZED)
        return answer

    def call(self, name, /, **arguments):
        """The structured answer of a tool."""
        answer = self.ask(tool(name, **arguments))
        assert not answer["result"].get("isError"), answer
        return answer["result"]["structuredContent"]

    def leave(self):
        """Close stdin; returns the rest of the output, and the exit code."""
        rest, _ = self.pipe.communicate(timeout=180)
        return rest, self.pipe.returncode


@contextmanager
def talk(place, profile="all", **more):
    client = Talk(place, profile, **more)
    try:
        yield client
    finally:
        client.pipe.kill()
        client.pipe.communicate()
