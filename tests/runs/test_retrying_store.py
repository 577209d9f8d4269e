"""An outage of the store at every single call: every kind of worker waits until it is over."""

from __future__ import annotations

import pytest

from hypervisor.agents.stream_state import StreamState
from hypervisor.core.errors import StoreFull, StoreGone, StoreUnavailable
from hypervisor.queue.agent_session import Tokens
from hypervisor.queue.sql import event_log
from hypervisor.runs import retrying_store, settlement
from tests.agents.agent_bench import AgentBench
from tests.agents.test_pull_worker import EMPTY, KeptBench
from tests.support.benches import WELL, Bench
from tests.support.intercept import intercept

SAID = StreamState(
    "s-1",
    Tokens(100, 10),
    0.10,
    1,
    1,
    ended=True,
    ok=True,
    result={"status": "completed", "summary": "did it"},
)
FOR_EVER = 10_000


class Outage:
    """Passes calls on to the database; from one call on, it is unavailable for a while."""

    def __init__(self, bench, first, calls, error):
        self._first, self._calls, self._error = first, calls, error
        self.count, self.away, self.pauses = 0, 0, 0
        self.exempt = False
        database, pause = bench.store._db, bench.runner.pause
        for name in ("read", "write", "write_unsynced", "run", "event_rows"):
            setattr(database, name, self._failing(getattr(database, name)))

        def wait(seconds):
            """A worker waits only in an outage, or when there is nothing left to do."""
            self.pauses += 1
            if self.away:
                self.away = 0
            else:
                pause(seconds)

        bench.runner.pause = wait
        attempt = bench.runner.wait

        def run(seconds):
            """There is no outage for the attempt itself."""
            self.exempt = True
            try:
                return attempt(seconds)
            finally:
                self.exempt = False

        bench.runner.wait = run

    def _failing(self, call):
        def failing(*args, **named):
            if self.exempt:
                return call(*args, **named)
            self.count += 1
            if self._first <= self.count < self._first + self._calls:
                self.away = 1
                raise self._error("away")
            return call(*args, **named)

        return failing


def _commands(folder):
    bench = Bench(folder)
    return bench, [bench.item("a"), bench.item("b", None, None, WELL)], bench.work


def _agents(folder):
    bench = AgentBench(folder)
    tasks = [bench.item("a", (SAID, WELL)), bench.item("b", StreamState("s-2"), (SAID, WELL))]
    return bench, tasks, bench.work


def _pulling(folder):
    bench = KeptBench(folder)
    tasks = [bench.item("a"), bench.item("b")]
    claiming = [bench.claims(2), bench.completes, (EMPTY, WELL)]
    return bench, tasks, lambda: bench.agents_do(claiming)


KINDS = pytest.mark.parametrize("make", [_commands, _agents, _pulling])


@KINDS
def test_an_outage_at_any_call_changes_nothing(make, tmp_path):
    """Each call fails twice in a row; calls that cannot wait because an attempt is running are
    skipped."""
    (tmp_path / "smooth").mkdir()
    bench, tasks, work = make(tmp_path / "smooth")
    smooth = Outage(bench, FOR_EVER, 0, StoreUnavailable)
    work()
    calls = smooth.count
    assert [bench.store.task(task).state for task in tasks] == ["done", "done"] and calls > 5
    bench.store.close()
    for call in range(1, calls + 1):
        folder = tmp_path / str(call)
        folder.mkdir()
        bench, tasks, work = make(folder)
        outage = Outage(bench, call, 2, StoreUnavailable)
        work()
        outage.exempt = True
        states = [bench.store.task(task).state for task in tasks]
        assert states == ["done", "done"], (call, states, bench.log)
        assert [len(bench.store.detail(task).attempts) for task in tasks] == [1, 1], call
        bench.store.close()


def test_a_full_disk_is_waited_for_without_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(retrying_store, "STORE_PATIENCE", 0.0)
    bench, tasks, work = _commands(tmp_path)
    outage = Outage(bench, 3, 50, StoreFull)
    work()
    assert [bench.store.task(task).state for task in tasks] == ["done", "done"]
    assert outage.pauses >= 50
    bench.store.close()


@pytest.mark.parametrize(("error", "limit"), [(StoreGone, 60.0), (StoreUnavailable, 0.0)])
def test_what_is_not_waited_for(tmp_path, monkeypatch, error, limit):
    monkeypatch.setattr(retrying_store, "STORE_PATIENCE", limit)
    bench, _, work = _commands(tmp_path)
    outage = Outage(bench, 3, FOR_EVER, error)
    with pytest.raises(error):
        work()
    assert outage.pauses == 0 and bench.began() == []


def test_what_only_appends_is_never_written_twice(tmp_path, monkeypatch):
    """The event was stored, but the answer was lost: a retry would store it twice."""
    bench, _, _ = _commands(tmp_path)

    def stored_without_answer(note, *args, **named):
        note(*args, **named)
        raise StoreUnavailable("the answer got lost")

    intercept(monkeypatch, bench.store, event_log.note, stored_without_answer)
    with pytest.raises(StoreUnavailable):
        bench.context().note("trouble", {"message": "once"}, "")
    assert len(bench.events("trouble")) == 1
    bench.store.close()


def test_a_claim_after_a_long_outage_has_its_whole_lease(tmp_path, monkeypatch):
    """Each try reads the time again: the lease of a claim does not begin before the outage."""
    bench, _, _ = _commands(tmp_path)
    started = bench.store.now()
    times = iter([started, started + 300_000])
    seen, failures = [], iter([StoreFull("full")])

    def exchange(store, ended, request, now):
        seen.append(now)
        for error in failures:
            raise error
        return [], []

    monkeypatch.setattr(settlement, "settle_and_claim", exchange)
    monkeypatch.setattr(bench.store._db, "now", lambda: next(times))
    monkeypatch.setattr(bench.runner, "pause", lambda seconds: None)
    worker = bench.worker()
    worker.settlement.claim(None)
    assert seen == [started, started + 300_000]
    bench.store.close()
