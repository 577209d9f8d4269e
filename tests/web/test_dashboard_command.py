"""`hv dashboard` as a process: it starts, shares a store with others, and ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
from typing import Any

import pytest

from hypervisor.web.dashboard import assets

DEADLINE = 120.0  # seconds
START = "import sys; from hypervisor.app import main; sys.argv[0] = 'hv'; sys.exit(main())"


class Program:
    """`hv` in a folder, with the processes that it started."""

    def __init__(self, folder: Any, store: str) -> None:
        self.folder = folder
        self.env = {**os.environ, "HOME": str(folder), "HYPERVISOR_STORE": store}
        self.started: list[subprocess.Popen[str]] = []

    def run(self, *args: str) -> Any:
        done = subprocess.run(
            self._command(args), cwd=self.folder, env=self.env, capture_output=True, text=True,
            timeout=DEADLINE,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def start(self, *args: str) -> tuple[subprocess.Popen[str], Any]:
        """A dashboard and what it printed."""
        command = self._command((*args, "--json"))
        process = subprocess.Popen(
            command, cwd=self.folder, env=self.env, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self.started.append(process)
        assert process.stdout
        return process, json.loads(process.stdout.readline())

    def _command(self, args: tuple[str, ...]) -> list[str]:
        return [sys.executable, "-I", "-c", START, *args]


@pytest.fixture(params=["sqlite", "postgres"])
def program(request, tmp_path):
    if not assets.are_present():
        assets.fetch()
    on_postgres = request.param == "postgres"
    store = request.getfixturevalue("postgres_url") if on_postgres else str(tmp_path / "x.db")
    made = Program(tmp_path, store)
    yield made
    for process in made.started:
        process.kill()
        process.communicate()


def status(url: str, path: str = "", method: str = "GET") -> int:
    """The status that the holder of a printed link gets."""
    address, _, token = url.partition("#t=")
    headers = {"Authorization": f"Bearer {token}", "Origin": address.rstrip("/")}
    request = urllib.request.Request(address + path, headers=headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_two_serve_a_store_until_they_are_interrupted(program):
    task = program.run("add", "first", "--json")["ids"][0]
    first, printed = program.start("dashboard", "--share", "1h")
    _, other = program.start("ui")
    assert printed["url"] != other["url"] and printed["pid"] is None
    for url in (printed["url"], other["url"], printed["share"]):
        assert status(url, f"tasks/{task}") == 200
    assert status(printed["share"], f"tasks/{task}/cancel", "POST") == 403
    assert status(other["url"].replace("#t=", "#t=x")) == 401

    first.send_signal(signal.SIGINT)
    assert first.wait(DEADLINE) == 130 and first.communicate()[1] == ""
    assert status(other["url"], f"tasks/{task}/cancel", "POST") == 200
    assert program.run("show", task, "--json")["detail"]["task"]["state"] == "cancelled"


def test_one_in_the_background_stays_until_it_is_killed(program):
    task = program.run("add", "first", "--json")["ids"][0]
    printed = program.run("dashboard", "--detach", "--read-only", "--json")
    try:
        assert status(printed["url"], f"tasks/{task}") == 200
        assert status(printed["url"], f"tasks/{task}/cancel", "POST") == 403
    finally:
        os.kill(printed["pid"], signal.SIGTERM)
    deadline = time.monotonic() + DEADLINE
    with suppress(ConnectionError, urllib.error.URLError):
        while time.monotonic() < deadline:
            status(printed["url"])
            time.sleep(0.05)
    assert time.monotonic() < deadline, "it still answers"
