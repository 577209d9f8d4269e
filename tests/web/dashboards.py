"""A dashboard without a network, and requests to it."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple
from urllib.parse import urlencode

from hypervisor.web.dashboard.server import Options, access_to, make

HOST = "127.0.0.1:8500"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    text: str


class Browser:
    """Sends what a browser on the same page would send; headers can be replaced or left out."""

    def __init__(self, hv: Any, **options: Any) -> None:
        self.hv, self.access = hv, access_to(hv)
        self.dashboard, self.app = make(hv, Options(**options))
        self.cookie = f"{self.access.cookie_name}={self.access.cookie}"

    def get(self, path: str, **headers: str | None) -> Answer:
        return self.send("GET", path, b"", {"cookie": self.cookie, **_named(headers)})

    def part(self, path: str, name: str) -> Answer:
        return self.get(f"{path}{'&' if '?' in path else '?'}part={name}", hx_request="true")

    def post(self, path: str, form: dict[str, str] | None = None, **headers: str | None) -> Answer:
        usual = {
            "cookie": self.cookie,
            "origin": f"http://{HOST}",
            "sec-fetch-site": "same-origin",
            "hx-request": "true",
            "content-type": "application/x-www-form-urlencoded",
        }
        return self.send("POST", path, urlencode(form or {}).encode(), {**usual, **_named(headers)})

    def send(self, method: str, path: str, body: bytes, headers: dict[str, str | None]) -> Answer:
        return asyncio.run(exchange(self.app, method, path, body, headers))


def _named(headers: dict[str, str | None]) -> dict[str, str | None]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


async def exchange(
    app: Any, method: str, path: str, body: bytes, headers: dict[str, str | None]
) -> Answer:
    """One request to an application, by its interface."""
    route, _, query = path.partition("?")
    given = {"host": HOST, "content-length": str(len(body)), **headers}
    scope = {
        "type": "http",
        "method": method,
        "path": route,
        "raw_path": route.encode(),
        "root_path": "",
        "scheme": "http",
        "http_version": "1.1",
        "query_string": query.encode(),
        "headers": [(k.encode(), v.encode("latin-1")) for k, v in given.items() if v is not None],
        "server": ("127.0.0.1", 8500),
        "client": ("127.0.0.1", 50_000),
        "asgi": {"version": "3.0", "spec_version": "2.3"},
    }
    sent: list[dict[str, Any]] = []
    requests = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        if not requests:
            await asyncio.Event().wait()  # it stays connected
        return requests.pop(0)

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    content = b"".join(message.get("body", b"") for message in sent[1:])
    named = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return Answer(sent[0]["status"], named, content.decode())
