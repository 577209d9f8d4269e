"""Who may connect over HTTP: with the complete token, each header once, from this machine only."""

from __future__ import annotations

import asyncio

import pytest

from hypervisor.mcp.http import Guard

TOKEN = "correct-horse-battery"
HOST, RIGHT = ("host", "127.0.0.1:8424"), ("authorization", f"Bearer {TOKEN}")


def status(*headers, kind="http"):
    """The status of a request with these headers; 200 if it is accepted."""
    said = []

    async def app(scope, receive, send):
        said.append({"status": 200})

    async def send(message):
        said.append(message)

    async def receive():
        raise AssertionError("nothing of a stranger's request is read")

    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    asyncio.run(Guard(app, TOKEN)({"type": kind, "headers": raw}, receive, send))
    return said[0]["status"]


@pytest.mark.parametrize(
    "headers",
    [
        [HOST, RIGHT],
        [("Host", "localhost"), ("Authorization", f"bearer  {TOKEN} ")],
        [("host", "[::1]:8424"), RIGHT],
        [HOST, RIGHT, ("origin", "http://localhost:3000")],
    ],
)
def test_it_lets_in(headers):
    assert status(*headers) == 200


@pytest.mark.parametrize(
    ("headers", "wanted"),
    [
        ([HOST], 401),
        ([HOST, ("authorization", "Bearer ")], 401),
        ([HOST, ("authorization", f"Bearer {TOKEN[:-1]}")], 401),
        ([HOST, ("authorization", f"Bearer {TOKEN}x")], 401),
        ([HOST, ("authorization", f"Basic {TOKEN}")], 401),
        ([HOST, ("authorization", TOKEN)], 401),
        ([HOST, ("authorization", "Bearer \xe9")], 401),
        ([HOST, RIGHT, RIGHT], 401),
        ([HOST, RIGHT, ("authorization", "Bearer wrong")], 401),
        ([RIGHT], 421),
        ([HOST, ("host", "evil.example"), RIGHT], 421),
        ([("host", "127.0.0.1:8424:evil.example"), RIGHT], 421),
        ([("host", "127.0.0.1:x"), RIGHT], 421),
        ([("host", "[::1"), RIGHT], 421),
        ([("host", ""), RIGHT], 421),
        ([HOST, RIGHT, ("origin", "")], 403),
        ([HOST, RIGHT, ("origin", "localhost")], 403),
        ([HOST, RIGHT, ("origin", "https://localhost")], 403),
        ([HOST, RIGHT, ("origin", "http://localhost"), ("origin", "http://localhost")], 403),
    ],
)
def test_it_keeps_out(headers, wanted):
    assert status(*headers) == wanted


def test_there_is_only_http():
    assert status(HOST, RIGHT, kind="websocket") == 404
