"""The stream of events: exact after a reconnect, one message for a long backlog."""

from __future__ import annotations

import asyncio
import json

import pytest

import hypervisor
from hypervisor.web.dashboard.feed import MAX_BACKLOG, Feed, missed
from tests.web.dashboards import Browser


@pytest.fixture
def hv(tmp_path):
    with hypervisor.open(tmp_path / "x.db", relaxed=True) as opened:
        opened.add([hypervisor.NewTask("first")])
        yield opened


async def read(stream, count):
    """The next messages of a stream: their numbers and topics."""
    found: list[tuple[int, list[str]]] = []
    while len(found) < count:
        text = await asyncio.wait_for(anext(stream), 60)
        if text.startswith("id: "):
            number, data = text.splitlines()[:2]
            found.append((int(number[4:]), json.loads(data.removeprefix("data: "))["topics"]))
    return found


def test_a_browser_gets_what_it_missed_and_then_what_happens(hv):
    async def scenario():
        feed = Feed(hv, interval=0.01, busy_interval=0.01)
        stream = feed.follow(0)
        ((seen, topics),) = await read(stream, 1)
        task = hv.list_tasks()[0].id
        assert f"task:{task}" in topics and "kind:add" in topics
        added = await asyncio.to_thread(hv.add, [hypervisor.NewTask("second")])
        ((later, topics),) = await read(stream, 1)
        assert later > seen and f"task:{added.id}" in topics and f"task:{task}" not in topics
        await stream.aclose()
        again = feed.follow(seen)  # reconnects with the number it has seen
        assert await read(again, 1) == [(later, topics)]
        await again.aclose()

    asyncio.run(scenario())


def test_after_a_message_the_next_one_takes_a_little_longer(hv):
    async def scenario():
        feed = Feed(hv, interval=0.01, busy_interval=0.5)
        stream = feed.follow(0)
        await read(stream, 1)
        await asyncio.to_thread(hv.add, [hypervisor.NewTask("second")])
        await read(stream, 1)
        began = asyncio.get_running_loop().time()
        await asyncio.to_thread(hv.add, [hypervisor.NewTask("third")])
        await read(stream, 1)
        assert asyncio.get_running_loop().time() - began > 0.3
        await stream.aclose()

    asyncio.run(scenario())


def test_streams_share_one_reader_that_ends_with_the_last(hv):
    async def scenario():
        feed = Feed(hv, interval=0.01, busy_interval=0.01)
        streams = [feed.follow(None) for _ in range(12)]
        waiting = [asyncio.create_task(read(stream, 1)) for stream in streams]
        while len(feed._queues) < len(streams):
            await asyncio.sleep(0.01)
        reader = feed._reader
        await asyncio.to_thread(hv.add, [hypervisor.NewTask("x")])
        assert len({repr(await got) for got in waiting}) == 1
        assert feed._reader is reader and reader
        for stream in streams:
            await stream.aclose()
        assert feed._reader is None

    asyncio.run(scenario())


def test_a_long_backlog_becomes_one_message(hv):
    hv.add([hypervisor.NewTask(f"t{n}") for n in range(MAX_BACKLOG + 1)])
    found = missed(hv, 0)
    assert found is not None and found.topics == () and found.last == hv.events(0, 5000)[-1].seq
    assert missed(hv, found.last) is None


def test_streams_end_with_the_server(hv):
    async def scenario():
        feed = Feed(hv, interval=0.01, busy_interval=0.01)
        stream = feed.follow(None)
        assert (await anext(stream)).startswith("retry:")
        rest = asyncio.create_task(anext(stream, "ended"))
        while not feed._queues:
            await asyncio.sleep(0.01)
        feed.close()
        assert await asyncio.wait_for(rest, 60) == "ended"

    asyncio.run(scenario())


def test_a_browser_without_shared_workers_asks(hv):
    browser = Browser(hv)
    answer = json.loads(browser.get("/events/after?after=0").text)
    assert "kind:add" in answer["topics"]
    assert browser.get(f"/events/after?after={answer['last']}").text == "null"


def test_a_stream_ends_with_the_right_to_read_it(hv):
    async def scenario():
        allowed = [True]
        feed = Feed(hv, interval=0.01, busy_interval=0.01)
        stream = feed.follow(None, lambda: allowed[0])
        assert (await anext(stream)).startswith("retry:")
        following = asyncio.create_task(anext(stream))
        while not feed._queues:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(hv.add, [hypervisor.NewTask("told")])
        assert "kind:add" in await asyncio.wait_for(following, 60)
        allowed[0] = False
        following = asyncio.create_task(anext(stream, "ended"))
        await asyncio.to_thread(hv.add, [hypervisor.NewTask("not told")])
        assert await asyncio.wait_for(following, 60) == "ended"

    asyncio.run(scenario())
