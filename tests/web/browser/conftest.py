"""A real dashboard, a real supervisor and a real Chromium."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import hypervisor
from tests.support.ungoverned import UNGOVERNED

DEADLINE = 60.0  # seconds
LIVE = "#connection[data-state=live]"
START = "import sys; from hypervisor.app import main; sys.argv[0] = 'hv'; sys.exit(main())"
FLAGS = ["--host-resolver-rules=MAP *.example 127.0.0.1"]  # as a rebound name would be
REPORT_REFUSALS = """
addEventListener("securitypolicyviolation", event =>
    console.error("policy", event.violatedDirective, event.blockedURI, event.sourceFile));
"""


def wait_for(condition: Callable[[], Any], what: str = "") -> Any:
    """The first true answer; fails after the deadline."""
    deadline = time.monotonic() + DEADLINE
    while not (answer := condition()):
        assert time.monotonic() < deadline, what or "it did not happen"
        time.sleep(0.05)
    return answer


class Project:
    """A folder with a store, and its dashboard."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / ".hypervisor" / "store.db"
        self.env = {**os.environ, "HYPERVISOR_STORE": str(self.store)}
        self.url = self.address = ""
        self.server: subprocess.Popen[str] | None = None

    def hv(self, *args: str) -> str:
        done = self._run(*args)
        assert done.returncode == 0, (args, done.stdout, done.stderr)
        return done.stdout

    def try_hv(self, *args: str) -> str:
        """What it printed, whether it succeeded or not."""
        done = self._run(*args)
        return done.stdout + done.stderr

    def _run(self, *args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._command(*args), cwd=self.folder, env=self.env, capture_output=True, text=True,
            timeout=DEADLINE,
        )  # fmt: skip

    def json(self, *args: str) -> Any:
        return json.loads(self.hv(*args, "--json"))

    def open(self) -> hypervisor.Hypervisor:
        """The store from here, which is quicker than a process for each change."""
        return hypervisor.open(self.store, relaxed=True)

    def ungoverned(self) -> None:
        """Runs start whatever else this machine does."""
        self.store.parent.mkdir(exist_ok=True)
        (self.store.parent / "config.toml").write_text(UNGOVERNED)

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def serve(self, *args: str, port: int = 0) -> None:
        command = self._command("dashboard", "--json", "--port", str(port), *args)
        self.server = subprocess.Popen(
            command, cwd=self.folder, env=self.env, stdout=subprocess.PIPE, text=True
        )
        assert self.server.stdout
        self.url = json.loads(self.server.stdout.readline())["url"]
        self.address = self.url.partition("#")[0].rstrip("/")

    def kill(self) -> None:
        """As a power cut would."""
        if self.server:
            self.server.kill()
            self.server.wait(DEADLINE)
            assert self.server.stdout
            self.server.stdout.close()
            self.server = None

    def end(self) -> None:
        self.kill()
        deadline = time.monotonic() + DEADLINE
        while (pid := self._supervisor()) and time.monotonic() < deadline:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGINT)
            time.sleep(0.2)

    def _supervisor(self) -> int | None:
        with self.open() as hv:
            return hv.status().supervisor

    def _command(self, *args: str) -> list[str]:
        return [sys.executable, "-I", "-c", START, *args]


@pytest.fixture
def project(tmp_path):
    made = Project(tmp_path)
    with made.open() as hv:
        hv.add("first")
    yield made
    made.end()


@pytest.fixture(scope="session")
def chromium():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        flags = [*FLAGS, *(["--no-sandbox"] if os.getuid() == 0 else [])]
        started = playwright.chromium.launch(executable_path=os.environ["HV_CHROMIUM"], args=flags)
        yield started
        started.close()


class Problems(list[str]):
    """What went wrong in a browser: errors of scripts, and what the policy refused."""

    def __init__(self) -> None:
        super().__init__()
        self._expected = ["Failed to load resource"]

    def expect(self, *patterns: str) -> None:
        """What a test causes on purpose is no problem."""
        self._expected += patterns

    def watch(self, page: Any, address: str) -> None:
        page.on("pageerror", lambda error: self._add(str(error)))
        page.on("console", lambda line: self.hear(line.type, line.text))
        page.on("request", lambda request: self.see(request.url, address))

    def hear(self, kind: str, text: str) -> None:
        if kind == "error":
            self._add(text)

    def see(self, url: str, address: str) -> None:
        if not url.startswith((address, "data:", "blob:")):
            self._add(f"loads {url}")

    def _add(self, text: str) -> None:
        if not any(re.search(pattern, text) for pattern in self._expected):
            self.append(text)


@pytest.fixture
def problems():
    found = Problems()
    yield found
    assert found == []


class Person:
    """A person with their own browser. Calling it opens a tab; the first one signs in."""

    def __init__(self, chromium: Any, project: Project, problems: Problems, **options: Any) -> None:
        self.project, self.problems = project, problems
        self.context = chromium.new_context(**options)
        self.context.set_default_timeout(DEADLINE * 1000)
        self.context.add_init_script(REPORT_REFUSALS)
        self.address = project.address  # where tabs go

    def __call__(self, path: str = "/", sign_in: bool = False) -> Any:
        page = self.context.new_page()
        self.problems.watch(page, self.address)
        if sign_in or not self.context.cookies():
            page.goto(f"{self.address}/#{self.project.url.partition('#')[2]}")
            page.wait_for_selector("header.top")
        page.goto(self.address + path)
        return page


@pytest.fixture
def person(chromium, project, problems):
    """Makes people; the dashboard has to be served already."""
    made: list[Person] = []

    def someone(**options: Any) -> Person:
        made.append(Person(chromium, project, problems, **options))
        return made[-1]

    yield someone
    for each in made:
        each.context.close()


@pytest.fixture
def tab(project, person):
    """Opens tabs of one browser that is signed in."""
    project.serve()
    return person()
