"""Tabs of the dashboard's home page, in a process of their own that a benchmark opens and closes.

A stand-in does what `live.js` does: it keeps the stream of events open, and fetches every part of
the page again after a message, but not more often than the page would. It stands for browsers,
mostly on other machines, so it runs at idle priority: what it uses itself must not count.
`chromium` opens real tabs instead, which do count.

Either notes when a tab first shows a running task.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from typing import Any

PARTS = "/?part=needs,running,waiting,finished"
PAUSE = 0.5  # seconds between two fetches of a part, as in live.js
PLOTS = "/metrics.json?minutes=10"
EVERY = 2.0  # seconds between two fetches of the plots, as in plots.js
SHOWN = re.compile(rb'href="/tasks/([0-9a-zA-Z]+)"')
PATIENCE = 60.0
Seen = dict[str, dict[int, float]]  # task -> tab -> when it was first shown


class Tabs:
    """The process with the tabs."""

    def __init__(self, base: str, token: str, count: int, kind: str = "stand-ins") -> None:
        command = [sys.executable, "-m", "bench.dashboard_tabs", base, str(count), kind]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._tell(token)

    def open(self) -> None:
        self._tell("open")

    def close(self) -> Seen:
        answer = self._tell("close")
        return {task: {int(k): at for k, at in tabs.items()} for task, tabs in answer.items()}

    def end(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _tell(self, line: str) -> Any:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


class StandIns:
    def __init__(self, base: str, token: str, count: int) -> None:
        if hasattr(os, "SCHED_IDLE"):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        self._address, self._token, self._count = base.partition("://")[2], token, count
        self._loop = asyncio.new_event_loop()
        self._tasks: list[asyncio.Task[None]] = []
        self._seen: Seen = {}

    def open(self) -> None:
        self._seen = {}
        self._loop.run_until_complete(self._open())

    def wait(self) -> None:
        """Until there is a line to read."""
        event = asyncio.Event()
        self._loop.add_reader(0, event.set)
        self._loop.run_until_complete(event.wait())
        self._loop.remove_reader(0)

    def close(self) -> Seen:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            self._loop.run_until_complete(asyncio.wait(self._tasks))
        self._tasks = []
        return self._seen

    def end(self) -> None:
        self.close()

    async def _open(self) -> None:
        for tab in range(self._count):
            changed, opened = asyncio.Event(), asyncio.Event()
            self._tasks += [
                self._loop.create_task(self._follow(changed, opened)),
                self._loop.create_task(self._look(tab, changed)),
                self._loop.create_task(self._plot()),
            ]
            await asyncio.wait_for(opened.wait(), PATIENCE)

    async def _follow(self, changed: asyncio.Event, opened: asyncio.Event) -> None:
        connection = await self._connect()
        connection.ask("/events/stream")
        async for line in connection.reader:
            opened.set()
            if line.startswith(b"data:"):
                changed.set()

    async def _look(self, tab: int, changed: asyncio.Event) -> None:
        connection = await self._connect()
        while True:
            await changed.wait()
            changed.clear()
            pause = self._loop.create_task(asyncio.sleep(PAUSE))
            self._note(tab, await connection.get(PARTS))
            await pause

    def _note(self, tab: int, text: bytes) -> None:
        now = time.time()
        for task in SHOWN.findall(text):
            self._seen.setdefault(task.decode(), {}).setdefault(tab, now)

    async def _plot(self) -> None:
        connection = await self._connect()
        while True:
            await connection.get(PLOTS)
            await asyncio.sleep(EVERY)

    async def _connect(self) -> Connection:
        host, _, port = self._address.partition(":")
        return Connection(
            *await asyncio.open_connection(host, int(port)), self._address, self._token
        )


class Connection:
    """Stays open between requests, as a browser's does."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, token: str
    ) -> None:
        self.reader, self._writer = reader, writer
        self._head = f"Host: {host}\r\nAuthorization: Bearer {token}\r\nHX-Request: true\r\n\r\n"

    def ask(self, path: str) -> None:
        self._writer.write(f"GET {path} HTTP/1.1\r\n{self._head}".encode())

    async def get(self, path: str) -> bytes:
        self.ask(path)
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        if not head.startswith(b"http/1.1 200"):
            raise RuntimeError(f"{path}: {head.decode()}")
        length = int(head.partition(b"content-length:")[2].split(b"\r", 1)[0])
        return await self.reader.readexactly(length)


NOTE = """() => {
    window.shown = {};
    const note = () => {
        for (const link of document.querySelectorAll('#part-running a[href^="/tasks/"]')) {
            window.shown[link.getAttribute("href").slice(7)] ??= Date.now() / 1000;
        }
    };
    note();
    new MutationObserver(note).observe(document.getElementById("part-running"),
        { childList: true, subtree: true, attributes: true });
}"""


class Chromium:
    def __init__(self, base: str, token: str, count: int) -> None:
        from playwright.sync_api import sync_playwright

        self._base, self._count = base, count
        self._pages: list[Any] = []
        self._playwright = sync_playwright().start()
        flags = ["--no-sandbox"] if os.getuid() == 0 else []
        self._browser = self._playwright.chromium.launch(
            executable_path=os.environ.get("HV_CHROMIUM"), args=flags
        )
        self._context = self._browser.new_context()
        page = self._context.new_page()
        page.goto(f"{base}/#t={token}")
        page.wait_for_selector("header.top")
        page.close()

    def open(self) -> None:
        for _ in range(self._count):
            page = self._context.new_page()
            page.goto(self._base + "/")
            page.wait_for_selector("#connection[data-state=live]")
            page.evaluate(NOTE)
            self._pages.append(page)

    def wait(self) -> None:
        pass

    def close(self) -> Seen:
        seen: Seen = {}
        for tab, page in enumerate(self._pages):
            for task, at in page.evaluate("window.shown").items():
                seen.setdefault(task, {})[tab] = at
            page.close()
        self._pages = []
        return seen

    def end(self) -> None:
        self._browser.close()
        self._playwright.stop()


def main() -> None:
    base, count, kind = sys.argv[1:]
    token = sys.stdin.readline().strip()
    tabs = (StandIns if kind == "stand-ins" else Chromium)(base, token, int(count))
    print("{}", flush=True)
    while True:
        tabs.wait()
        line = os.read(0, 100).decode().strip()  # not buffered: `wait` looks at the pipe itself
        if line == "open":
            tabs.open()
            print("{}", flush=True)
        elif line == "close":
            print(json.dumps(tabs.close()), flush=True)
        else:
            return tabs.end()


if __name__ == "__main__":
    main()
