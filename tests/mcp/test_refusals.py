"""Invalid tokens: guessing is slow, and is logged."""

from __future__ import annotations

import anyio

from hypervisor import NewTask
from hypervisor.serving.refusals import FREE, MAX_COUNT, MAX_LENGTH, PAUSE, Refusals
from tests.mcp.conftest import call, refused


def test_a_few_refusals_cost_nothing_and_many_cost_more_and_more():
    waits = Refusals()
    assert [waits.add(1, 100.0) for _ in range(FREE)] == [0.0] * FREE
    assert [waits.add(1, 100.0) for _ in range(3)] == [PAUSE, 2 * PAUSE, 3 * PAUSE]
    assert waits.add(1000, 100.0) == MAX_LENGTH


def test_what_was_refused_long_ago_is_forgotten():
    waits = Refusals()
    assert waits.add(FREE + 1000, 100.0) == MAX_LENGTH
    assert waits.add(1, 100.0 + MAX_COUNT + FREE * PAUSE) == 0.0


def test_refusals_are_reported_when_they_begin_and_at_ten_times_as_many():
    reports: list[int] = []
    waits = Refusals(reports.append)
    for _ in range(300):
        waits.add(1, 100.0)
    assert reports == [FREE + 1, 10 * (FREE + 1)]


def guessed(token, number):
    return f"{token.rpartition('.')[0]}.{number:016d}"


def test_a_worker_that_guesses_tokens_is_slowed_and_the_log_tells(place):
    with place.open() as hv:
        (task,) = hv.add([NewTask("somebody's")]).ids
        (lease,) = hv.claim("somebody", pid=0)
    code = lease.token.rpartition(".")[2]
    assert len(code) == 16

    async def work():
        async with place.client("worker") as client:
            guesses = [guessed(lease.token, number) for number in range(FREE + 1)]
            beat = await call(client, "heartbeat", tokens=guesses)
            assert beat == {"alive": [], "lost": guesses}
            assert "has ended" in await refused(client, "complete_task", token=guesses[0])
            short = f"{lease.token.rpartition('.')[0]}.{code[:4]}"
            assert "has ended" in await refused(client, "complete_task", token=short)
            text = await refused(client, "heartbeat", tokens=[lease.token] * 1001)
            assert "maximum 1,000" in text

    anyio.run(work)
    with place.open() as hv:
        assert hv.show(task).detail.task.state == "in_progress"
        (event,) = [event for event in hv.events() if event.kind == "refused"]
        assert event.data["count"] == FREE + 1
