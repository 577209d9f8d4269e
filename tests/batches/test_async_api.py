"""The asyncio twin: every operation, awaited, with real runs."""

from __future__ import annotations

import asyncio
import inspect

import pytest

import hypervisor
from hypervisor import AsyncHypervisor, NewTask
from hypervisor.verbs import VERBS
from tests.support.python_runs import end_supervisor


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "run").mkdir(mode=0o700)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_can_be_awaited(verb, tmp_path):
    with hypervisor.open(tmp_path / "x.db", relaxed=True) as hv:
        method = getattr(AsyncHypervisor(hv), verb)
        assert inspect.iscoroutinefunction(method) and method.__doc__


def test_tasks_are_added_claimed_and_finished(project):
    async def work():
        async with hypervisor.open_async("x.db", relaxed=True) as hv:
            task = (await hv.add(NewTask("Review", key="r"), batch="b")).id
            (lease,) = await hv.claim("me")
            assert lease.task.id == task
            await hv.complete(lease.token, {"verdict": "fine"})
            with pytest.raises(hypervisor.NotFound):
                await hv.show("zzzzzzzz")
            return [result.result for result in await hv.results("b")]

    assert asyncio.run(work()) == [{"verdict": "fine"}]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_results_come_while_the_loop_continues(project, kind, request):
    store = "x.db" if kind == "sqlite" else request.getfixturevalue("postgres_url")

    async def work():
        hv = await hypervisor.open_async(store, relaxed=True)
        try:
            run = await hv.map("math:sqrt", [4, 9], ordered=True)
            values = [(result.item, result.result) async for result in run]
            assert await run.results() == [2.0, 3.0] and run.failed == ()
            naps = await hv.run(["sleep", "{}"], [1000])
            assert not await naps.wait(0.01)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(naps.results(), 0.05)
            await naps.cancel()
            return values, [result.state async for result in naps]
        finally:
            await asyncio.to_thread(end_supervisor, hv.hv)
            await hv.close()

    assert asyncio.run(work()) == ([(4, 2.0), (9, 3.0)], ["cancelled"])
