"""A real dashboard, a real supervisor and a real Chromium."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

DEADLINE = 60.0  # seconds
START = "import sys; from hypervisor.app import main; sys.argv[0] = 'hv'; sys.exit(main())"


class Project:
    """A folder with a store, and its dashboard."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {**os.environ, "HYPERVISOR_STORE": str(folder / ".hypervisor" / "store.db")}
        self.url = self.address = ""
        self.server: subprocess.Popen[str] | None = None

    def hv(self, *args: str) -> str:
        done = subprocess.run(
            self._command(*args), cwd=self.folder, env=self.env, capture_output=True, text=True,
            timeout=DEADLINE,
        )  # fmt: skip
        assert done.returncode == 0, (args, done.stdout, done.stderr)
        return done.stdout

    def json(self, *args: str) -> Any:
        return json.loads(self.hv(*args, "--json"))

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
            self.server = None

    def end(self) -> None:
        self.kill()
        deadline = time.monotonic() + DEADLINE
        while (pid := self.json("status")["supervisor"]) and time.monotonic() < deadline:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGINT)
            time.sleep(0.2)

    def _command(self, *args: str) -> list[str]:
        return [sys.executable, "-I", "-c", START, *args]


@pytest.fixture
def project(tmp_path):
    made = Project(tmp_path)
    made.hv("add", "first")
    yield made
    made.end()


@pytest.fixture(scope="session")
def chromium():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        flags = ["--no-sandbox"] if os.getuid() == 0 else []
        started = playwright.chromium.launch(executable_path=os.environ["HV_CHROMIUM"], args=flags)
        yield started
        started.close()


class Problems(list[str]):
    """What went wrong in a browser: errors of scripts, and what the policy refused."""

    def watch(self, page: Any, address: str) -> None:
        page.on("pageerror", lambda error: self.append(str(error)))
        page.on("console", lambda line: self.hear(line.type, line.text))
        page.on("request", lambda request: self.see(request.url, address))

    def hear(self, kind: str, text: str) -> None:
        if kind == "error" and "Failed to load resource" not in text:
            self.append(text)

    def see(self, url: str, address: str) -> None:
        if not url.startswith((address, "data:", "blob:")):
            self.append(f"loads {url}")


@pytest.fixture
def problems():
    found = Problems()
    yield found
    assert found == []


@pytest.fixture
def tab(chromium, project, problems):
    """Opens tabs of one browser that is signed in."""
    project.serve()
    context = chromium.new_context()
    context.set_default_timeout(DEADLINE * 1000)

    def opened(path: str = "/", sign_in: bool = False) -> Any:
        page = context.new_page()
        problems.watch(page, project.address)
        if sign_in or not context.cookies():
            page.goto(project.url)
            page.wait_for_selector("header.top")
        page.goto(project.address + path)
        return page

    opened.context = context  # type: ignore[attr-defined]
    yield opened
    context.close()
