"""Tabs share renderings, but never one from before a change that their browser knows of."""

from __future__ import annotations

import asyncio

import pytest

import hypervisor
from hypervisor.web.dashboard import shared
from hypervisor.web.dashboard.app import Dashboard
from tests.web.dashboards import Browser, exchange

DEADLINE = 60.0


@pytest.fixture
def hv(tmp_path):
    with hypervisor.open(tmp_path / "x.db", relaxed=True) as opened:
        opened.add([hypervisor.NewTask("first")], batch="b")
        yield opened


class Counting(Browser):
    rendered = 0


@pytest.fixture
def browser(hv, monkeypatch):
    """Counts what is rendered; a rendering never gets too old."""
    monkeypatch.setattr(shared, "AGE", 1e9)
    made = Counting(hv)
    render = Dashboard._render

    def counting(self, *args):
        made.rendered += 1
        return render(self, *args)

    monkeypatch.setattr(Dashboard, "_render", counting)
    return made


async def part(browser, path="/batches/b?part=progress", cookie=None):
    headers = {"cookie": cookie or browser.cookie, "hx-request": "true"}
    answer = await exchange(browser.app, "GET", path, b"", headers)
    assert answer.status == 200
    return answer.text


async def listening(browser):
    """A browser with an open stream; returns its stream."""
    feed = browser.dashboard.feed
    feed._interval = 0.01
    stream = feed.follow(None)
    await anext(stream)
    following = asyncio.create_task(anext(stream))
    async with asyncio.timeout(DEADLINE):
        while not feed.is_reading:
            await asyncio.sleep(0.01)
    return stream, following


def test_twelve_tabs_cost_one_rendering(browser):
    async def scenario():
        _, following = await listening(browser)
        texts = await asyncio.gather(*(part(browser) for _ in range(12)))
        assert browser.rendered == 1 and len(set(texts)) == 1 and "1 ready" in texts[0]
        await part(browser, "/batches/b?part=running")
        assert browser.rendered == 2, "another part"
        guest = f"{browser.access.cookie_name}={browser.access.share(10**14)}"
        await part(browser, cookie=guest)
        assert browser.rendered == 3, "a guest may only read"
        following.cancel()

    asyncio.run(scenario())


def test_an_own_action_is_visible_at_once(browser, hv):
    async def scenario():
        _, following = await listening(browser)
        browser.dashboard.feed._last = 10**9  # the reader of the log has not seen it yet
        assert "1 ready" in await part(browser)
        headers = {
            "cookie": browser.cookie,
            "origin": "http://127.0.0.1:8500",
            "hx-request": "true",
        }
        answer = await exchange(browser.app, "POST", "/batches/b/cancel", b"", headers)
        assert answer.status == 200
        assert "1 cancelled" in await part(browser)
        following.cancel()

    asyncio.run(scenario())


def test_what_another_process_changed_is_visible_once_the_stream_has_named_it(browser, hv):
    async def scenario():
        stream, following = await listening(browser)
        assert "1 ready" in await part(browser)
        await asyncio.to_thread(hv.cancel, hv.list_tasks()[0].id)
        assert "batch:" in await asyncio.wait_for(following, DEADLINE)
        assert "1 cancelled" in await part(browser)
        await stream.aclose()
        await asyncio.to_thread(hv.add, [hypervisor.NewTask("second")], batch="b")
        assert "1 ready" in await part(browser), "nobody listens: nothing is shared"

    asyncio.run(scenario())
