"""Cleaning up after dead workers: the processes they left are ended first, finished attempts

are not repeated. The launcher is simulated. It records what it was asked to do, and the state of
the task then.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from hypervisor.queue.add import add
from hypervisor.queue.context import Context
from hypervisor.queue.lane import ClaimFilter
from hypervisor.queue.lease import (
    AttemptResult,
    ClaimRequest,
    Leftovers,
    Usage,
    Worker,
    parse_token,
)
from hypervisor.queue.rescue import reap_worker, sweep
from hypervisor.queue.sql import stops as stops_sql
from hypervisor.queue.steer import cancel
from hypervisor.queue.task import NewTask
from hypervisor.resources.host import LocalHost
from hypervisor.runs.outputs.files import Outputs
from hypervisor.store.sqlite import SqliteDatabase
from tests.support.intercept import intercept
from tests.support.ledger import Ledger
from tests.support.parts import parts

NOW = 1_800_000_000_000
LEASE = 60_000
WORKER = Worker("w-1", "worker-1", "here", "boot/1", 11, 100)
OTHER = Worker("w-2", "worker-2", "here", "boot/1", 12, 100)
FAR = Worker("w-3", "worker-3", "there", "boot/2", 13, 100)


class DeadHost(LocalHost):
    """All workers of this host are gone, except those listed as alive."""

    def __init__(self):
        self.living: set[int] = set()

    def host(self):
        return "here"

    def boot(self):
        return "boot/1"

    def is_gone(self, worker):
        return None if worker.boot != "boot/1" else worker.pid not in self.living


class Undertaker:
    def __init__(self):
        self.left: dict[str, Leftovers] = {}
        self.ended: int | None = 0
        self.calls: list[tuple[str, dict[str, int]]] = []
        self.look: Any = dict

    def remains(self, worker):
        return self.left.get(worker.id)

    def end_leftovers(self, worker, remains, held):
        assert self.left.get(worker.id) == remains
        self.calls.append(("end", self.look()))
        return self.ended

    def forget_leftovers(self, worker, remains):
        self.calls.append(("forget", self.look()))
        del self.left[worker.id]


@pytest.fixture
def hv(tmp_path):
    undertaker: Any = Undertaker()
    store = Ledger(SqliteDatabase(str(tmp_path / "x.db"), relaxed=True))
    context = Context(
        store, DeadHost(), "me", parts=parts(launcher=undertaker, outputs=Outputs(str(tmp_path)))
    )
    undertaker.look = lambda: {s: n for s, n in store.stats(None, NOW).states.items() if n}
    yield context
    context.close()


@pytest.fixture
def tokens(hv):
    """Five tasks, claimed by a registered worker that has died."""
    add(hv, [NewTask(f"t{n}") for n in range(5)], "run", NOW)
    return claim(hv, WORKER, 5)


def claim(hv, worker, limit, now=NOW):
    hv.store.register(worker, hv.store.batch("run").id, now)
    leases = hv.store.claim(ClaimRequest(worker, limit, LEASE, ClaimFilter()), now)
    return [parse_token(lease.token) for lease in leases]


def left(hv, running=None, *verdicts, worker=WORKER):
    hv.launcher.left[worker.id] = Leftovers(
        verdicts, None if running is None else str(running), (99, 1), "/sys/fs/cgroup/x"
    )


def tasks(hv, tokens):
    return [hv.store.task(token.task) for token in tokens]


def test_what_had_ended_is_settled_not_repeated(hv, tokens):
    left(
        hv,
        None,
        AttemptResult(tokens[0], "complete", {"n": 1}, usage=Usage(0, 7, 8, 9)),
        AttemptResult(tokens[1], "fail", reason="exit code 3", usage=Usage(3, 1, 1, 1)),
        AttemptResult(tokens[2], "back_off", reason="flaky", retry_at=NOW + 500),
    )
    swept = sweep(hv, NOW + 1)
    found = tasks(hv, tokens)
    assert [t.state for t in found] == ["done", "failed", "waiting", "active", "active"]
    assert (found[0].result, found[1].reason, found[2].start_at) == (
        {"n": 1},
        "exit code 3",
        NOW + 500,
    )
    assert [a[6:] for a in hv.store.detail(tokens[0].task).attempts] == [(0, 7, 8, 9)]
    assert swept.reclaimed == (tokens[3].task, tokens[4].task)
    assert all(t.crashes == 0 for t in found)


def test_what_ran_counts_as_a_crash_and_what_had_not_started_costs_nothing(hv, tokens):
    left(hv, tokens[1], AttemptResult(tokens[0], "complete"))
    sweep(hv, NOW + 1)
    found = tasks(hv, tokens)
    assert [t.state for t in found] == ["done", *["active"] * 4]
    assert [t.crashes for t in found] == [0, 1, 0, 0, 0]
    outcomes = [hv.store.detail(t.id).attempts[0].outcome for t in found]
    assert outcomes == ["done", "crashed", "released", "released", "released"]
    why = hv.store.detail(tokens[2].task).attempts[0].reason
    assert why == "worker worker-1 (process 11 on here) is gone"


def test_a_worker_that_dies_ten_times_before_it_starts_anything_poisons_nothing(hv, tokens):
    for turn in range(10):
        left(hv)
        sweep(hv, NOW + turn)
        tokens = claim(hv, WORKER, 5, NOW + turn)
        assert len(tokens) == 5 and tokens[0].attempt == turn + 2


def test_the_token_of_an_earlier_attempt_of_the_task_is_not_what_ran(hv, tokens):
    left(hv, tokens[0]._replace(attempt=7))
    sweep(hv, NOW + 1)
    assert [t.crashes for t in tasks(hv, tokens)] == [0] * 5


def test_without_a_word_all_it_held_counts_as_a_crash(hv, tokens):
    sweep(hv, NOW + 1)
    assert [t.crashes for t in tasks(hv, tokens)] == [1] * 5


def test_without_a_word_what_it_started_ends_before_anything_is_handed_out(hv, tokens):
    hv.launcher.ended = None
    assert sweep(hv, NOW + 1).reclaimed == ()
    assert hv.launcher.calls == [("end", {"in_progress": 5})]
    hv.launcher.ended = 1
    assert len(sweep(hv, NOW + 2).reclaimed) == 5


def test_nothing_is_looked_for_of_one_that_only_claimed(hv):
    """Processes that it may have started carry no mark of ours."""
    add(hv, [NewTask("t")], "run", NOW)
    assert hv.store.claim(ClaimRequest(WORKER, 1, LEASE, ClaimFilter()), NOW)
    assert len(sweep(hv, NOW + 1).reclaimed) == 1
    assert hv.launcher.calls == []


def test_leftovers_end_before_anything_is_handed_out_or_settled(hv, tokens):
    left(hv, tokens[1], AttemptResult(tokens[0], "complete"))
    sweep(hv, NOW + 1)
    assert hv.launcher.calls == [
        ("end", {"in_progress": 5}),
        ("forget", {"done": 1, "active": 4}),
    ]


def test_while_a_leftover_cannot_be_ended_its_worker_keeps_everything(hv, tokens):
    left(hv, tokens[1], AttemptResult(tokens[0], "complete"))
    hv.launcher.ended = None
    for turn in range(3):
        assert sweep(hv, NOW + turn).reclaimed == ()
    assert [t.state for t in tasks(hv, tokens)] == ["in_progress"] * 5
    assert [what for what, _ in hv.launcher.calls] == ["end"] * 3
    hv.launcher.ended = 2
    assert len(sweep(hv, NOW + 9).reclaimed) == 4
    assert [t.crashes for t in tasks(hv, tokens)] == [0, 1, 0, 0, 0]
    assert hv.launcher.left == {}


def test_a_cancel_that_the_worker_did_not_live_to_see_is_honoured(hv, tokens):
    cancel(hv, tokens[1].task, "no need", NOW)
    cancel(hv, tokens[2].task, "nor this", NOW)
    left(hv, tokens[1])
    swept = sweep(hv, NOW + 1)
    found = tasks(hv, tokens)
    assert [t.state for t in found] == ["active", "cancelled", "cancelled", "active", "active"]
    assert [t.reason for t in found[1:3]] == ["no need", "nor this"]
    assert tokens[1].task not in swept.reclaimed
    last = [e for e in hv.store.events(0, 99) if e.kind == "cancel"]
    assert [e.actor for e in last] == ["me", "me"]
    assert hv.store.stops([t.id for t in found]) == []


def test_a_task_that_ended_before_the_cancel_came_is_done(hv, tokens):
    cancel(hv, tokens[0].task, "", NOW)
    left(hv, None, AttemptResult(tokens[0], "complete"))
    sweep(hv, NOW + 1)
    assert tasks(hv, tokens)[0].state == "done"


def test_a_cancel_is_honoured_for_a_worker_elsewhere_whose_lease_lapsed(hv, tokens):
    left(hv)
    sweep(hv, NOW + 1)
    far, _ = claim(hv, FAR, 2, NOW + 2)
    cancel(hv, far.task, "no need", NOW + 2)
    sweep(hv, NOW + 2 + LEASE)
    assert hv.store.task(far.task).state == "in_progress"
    sweep(hv, NOW + 3 + LEASE)
    assert hv.store.task(far.task).state == "cancelled"


def test_another_sweep_may_be_quicker_with_a_cancel(hv, tokens, monkeypatch):
    cancel(hv, tokens[0].task, "no need", NOW)
    left(hv, tokens[0])

    def too_slow(stops, wanted):
        found = stops(wanted)
        for stop in found:
            hv.store.cancel(stop.task, stop.reason, stop.actor, NOW)
        return found

    intercept(monkeypatch, hv.store, stops_sql.stops, too_slow)
    assert len(sweep(hv, NOW + 1).reclaimed) == 4
    assert tasks(hv, tokens)[0].state == "cancelled"


def test_a_late_sweep_finds_and_changes_nothing(hv, tokens):
    left(hv, tokens[1])
    held = hv.store.holders("boot/1", NOW)
    sweep(hv, NOW + 1)
    again = claim(hv, OTHER, 5, NOW + 2)
    before = hv.store.events(0, 999)
    assert reap_worker(hv, WORKER, held, NOW + 3) == []
    assert hv.store.events(0, 999) == before
    assert [t.state for t in tasks(hv, again)] == ["in_progress"] * 5


def test_a_late_reader_of_the_same_remains_changes_nothing(hv, tokens):
    """Two processes sweep at once, and both have read the journal before it was removed."""
    left(hv, tokens[1], AttemptResult(tokens[0], "complete"))
    held = hv.store.holders("boot/1", NOW)
    copy = dict(hv.launcher.left)
    sweep(hv, NOW + 1)
    hv.launcher.left = copy
    claim(hv, OTHER, 5, NOW + 2)
    before = hv.store.events(0, 999)
    assert reap_worker(hv, WORKER, held, NOW + 3) == []
    assert hv.store.events(0, 999) == before


def test_a_living_worker_is_not_buried(hv, tokens):
    left(hv, tokens[0], AttemptResult(tokens[1], "complete"))
    hv.probe.living = {WORKER.pid}
    sweep(hv, NOW + 10 * LEASE)
    assert [t.state for t in tasks(hv, tokens)] == ["in_progress"] * 5
    assert hv.launcher.calls == []


def test_the_journal_of_a_worker_is_kept_until_it_holds_no_claim(hv):
    """There may be more claims than one sweep handles; the journal covers all of them."""
    add(hv, [NewTask(f"t{n}") for n in range(1_600)], "run", NOW)
    first, second = claim(hv, WORKER, 800), claim(hv, OTHER, 800)
    left(hv, first[0])
    left(hv, second[-1], worker=OTHER)
    for turn in range(1, 5):
        sweep(hv, NOW + turn)
    assert hv.store.stats(None, NOW).states["active"] == 1_600
    crashed = [event.task for event in hv.store.events(0, 99_999) if event.kind == "crash"]
    assert sorted(crashed) == sorted([first[0].task, second[-1].task])
    assert hv.launcher.left == {}


def test_a_dead_worker_that_held_nothing_leaves_nothing_behind(hv, tokens):
    left(hv, worker=OTHER)
    assert reap_worker(hv, OTHER, [], NOW) == []
    assert hv.launcher.left == {}
    assert [t.state for t in tasks(hv, tokens)] == ["in_progress"] * 5


def test_without_parts_the_ledger_alone_is_swept(hv, tokens):
    left(hv, tokens[0])
    hv.parts = None
    assert len(sweep(hv, NOW + 1).reclaimed) == 5


def test_what_ran_keeps_what_it_had_printed(hv, tokens):
    spool = hv.outputs.spool_of(WORKER.id)
    os.makedirs(os.path.dirname(spool))
    with open(spool, "w") as file:
        file.write("words")
    left(hv, tokens[1], AttemptResult(tokens[0], "complete"))
    hv.launcher.ended = None
    sweep(hv, NOW + 1)
    assert os.path.exists(spool), "something of it may still write"
    hv.launcher.ended = 0
    sweep(hv, NOW + 2)
    assert hv.outputs.read(tokens[1].task, 1, 0, 99) == b"words"
    assert not os.path.exists(spool) and hv.outputs.size(tokens[0].task, 1) is None
