"""Retention: old outputs are deleted, and the oldest if there are too many; what is needed
stays."""

from __future__ import annotations

import os

import pytest

from hypervisor.agents.homes import AgentHomes
from hypervisor.queue.add import add
from hypervisor.queue.agent_session import NewSession, Tokens
from hypervisor.queue.context import Context
from hypervisor.queue.lease import AttemptResult, ClaimRequest, Worker, parse_token
from hypervisor.queue.task import NewTask
from hypervisor.resources.host import LocalHost
from hypervisor.runs.config import Settings
from hypervisor.runs.outputs.files import Outputs
from hypervisor.runs.outputs.retention import DAY, Collected, gc
from hypervisor.store.sqlite import SqliteDatabase
from tests.support.ledger import Ledger
from tests.support.parts import parts

NOW = 1_800_000_000_000
WORKER = Worker("w-1", "worker-1", "here", "boot/1", 11, 100)


@pytest.fixture
def equipped(tmp_path):
    store = Ledger(SqliteDatabase(str(tmp_path / "x.db"), relaxed=True))

    def with_settings(**settings):
        folder = str(tmp_path)
        given = parts(
            outputs=Outputs(folder), homes=AgentHomes(folder), settings=Settings(**settings)
        )
        return Context(store, LocalHost(), "me", parts=given)

    yield with_settings
    store.close()


@pytest.fixture
def hv(equipped):
    return equipped()


def task(hv, *events):
    """A task that went through attempts with these ends; the last may still run ("")."""
    [found] = add(hv, [NewTask("t")], now=NOW).ids
    for event in events:
        [lease] = hv.store.claim(ClaimRequest(WORKER, 1), NOW)
        if event:
            verdict = AttemptResult(parse_token(lease.token), event, reason=event or None)
            hv.store.settle([verdict], NOW)
    return found


def keep(hv, name, attempt=1, days=0.0, size=10):
    path = hv.outputs.prepare(name, attempt)
    with open(path, "wb") as file:
        file.write(b"x" * size)
    seconds = (NOW - days * DAY) / 1000
    os.utime(path, (seconds, seconds))


def kept(hv):
    return sorted((output.task, output.attempt) for output in hv.outputs.all())


def test_there_may_be_nothing_to_collect(hv):
    assert gc(hv, now=NOW) == Collected(0, 0, 0, 0)
    assert hv.store.events(0, 9) == []


def test_what_is_past_its_time_goes(hv):
    old, young = task(hv, "complete"), task(hv, "complete")
    keep(hv, old, days=30.01, size=7)
    keep(hv, young, days=29.99, size=5)
    assert gc(hv, now=NOW) == Collected(1, 7, 1, 5)
    assert kept(hv) == [(young, 1)]
    assert not os.path.exists(os.path.join(hv.outputs.root, old)), "its folder goes too"
    last = hv.store.events(0, 99)[-1]
    assert (last.kind, last.actor, last.data) == ("gc", "me", {"outputs": 1, "bytes": 7})
    assert gc(hv, now=NOW) == Collected(0, 0, 1, 5)
    assert hv.store.events(0, 99)[-1] == last, "nothing deleted, nothing told"


def test_of_too_many_the_oldest_go_until_they_fit(equipped):
    hv = equipped(keep_size=25)
    tasks = [task(hv, "complete") for _ in range(4)]
    for age, name in zip([2, 4, 1, 3], tasks, strict=True):
        keep(hv, name, days=age, size=10)
    assert gc(hv, now=NOW) == Collected(2, 20, 2, 20)
    assert kept(hv) == sorted([(tasks[0], 1), (tasks[2], 1)])


def test_exactly_as_much_as_may_be_kept_is_kept(equipped):
    hv = equipped(keep_size=20)
    for age in (1, 2):
        keep(hv, task(hv, "complete"), days=age, size=10)
    assert gc(hv, now=NOW).outputs == 0


@pytest.mark.parametrize(
    "events",
    [(), ("",), ("release",), ("back_off",), ("block",), ("fail", "")],
    ids=["queued", "running", "released", "to be retried", "blocked", "running again"],
)
def test_an_unfinished_task_keeps_all_of_its_own(equipped, events):
    hv = equipped(keep_size=0)
    if events == ("fail", ""):
        name = task(hv, "fail")
        hv.store.reopen(name, "", "me", NOW)
        hv.store.claim(ClaimRequest(WORKER, 1), NOW)
    else:
        name = task(hv, *events)
    keep(hv, name, 1, days=400)
    keep(hv, name, 2, days=300)
    assert gc(hv, now=NOW) == Collected(0, 0, 2, 20)
    assert kept(hv) == [(name, 1), (name, 2)]


@pytest.mark.parametrize("end", ["complete", "fail", "cancel"])
def test_a_finished_task_keeps_nothing_that_is_too_old(hv, end):
    name = task(hv, "release" if end == "cancel" else end)
    if end == "cancel":
        hv.store.cancel(name, "", "me", NOW)
    keep(hv, name, 1, days=50)
    keep(hv, name, 2, days=1)
    assert gc(hv, now=NOW).outputs == 1
    assert kept(hv) == [(name, 2)]


def test_what_unfinished_tasks_keep_counts_but_costs_others_their_place(equipped):
    """Outputs of finished tasks are deleted even if the space is used by others that must stay."""
    hv = equipped(keep_size=15)
    going, done = task(hv, ""), task(hv, "complete")
    keep(hv, going, days=9, size=10)
    keep(hv, done, days=1, size=10)
    assert gc(hv, now=NOW) == Collected(1, 10, 1, 10)
    assert kept(hv) == [(going, 1)]


def test_outputs_of_tasks_the_store_does_not_know_are_left_alone(equipped):
    hv = equipped(keep_size=0)
    keep(hv, "unknown00000", days=999)
    assert gc(hv, now=NOW) == Collected(0, 0, 1, 10)


def test_what_is_not_an_output_is_left_alone(equipped, tmp_path):
    hv = equipped(keep_size=0)
    name = task(hv, "complete")
    keep(hv, name, days=99)
    precious = tmp_path / "precious"
    precious.mkdir()
    output = os.path.basename(hv.outputs.path(name, 1))
    (precious / output).write_text("mine")
    group = os.path.dirname(hv.outputs.path(name, 1))
    strays = ["not an id.1.log", "notes.txt", "other.1.log", "x.log", f"{output}.bak"]
    for stray in strays:
        with open(os.path.join(group, stray), "w", encoding="ascii") as file:
            file.write("mine")
    os.symlink(precious, tmp_path / "outputs" / "linked")
    (tmp_path / "outputs" / "loose.log").write_text("mine")
    assert gc(hv, now=NOW).outputs == 1
    assert (precious / output).read_text() == "mine"
    assert sorted(os.listdir(group)) == sorted(strays)


def test_a_dry_run_tells_the_same_and_touches_nothing(equipped):
    hv = equipped(keep_size=25)
    for age in (2, 40, 1, 3):
        keep(hv, task(hv, "complete"), days=age, size=10)
    before, events = kept(hv), hv.store.events(0, 99)
    told = gc(hv, dry_run=True, now=NOW)
    assert told == Collected(2, 20, 2, 20)
    assert (kept(hv), hv.store.events(0, 99)) == (before, events)
    assert gc(hv, now=NOW) == told


def test_many_tasks_are_looked_up_in_parts(equipped):
    hv = equipped(keep_days=1)
    names = add(hv, [NewTask(f"{n}") for n in range(1_200)], now=NOW).ids
    leases = []
    while some := hv.store.claim(ClaimRequest(WORKER, 1_000), NOW):
        leases += some
    finished = [parse_token(lease.token) for lease in leases[::2]]
    hv.store.settle([AttemptResult(token, "complete") for token in finished], NOW)
    for name in names:
        keep(hv, name, days=2, size=1)
    assert gc(hv, now=NOW) == Collected(600, 600, 600, 600)
    assert {name for name, _ in kept(hv)} == set(names) - {token.task for token in finished}


# Agents


@pytest.fixture
def homes(tmp_path):
    return AgentHomes(str(tmp_path))


@pytest.fixture
def with_homes(equipped, homes):
    return equipped()


def test_homes_of_agents_go_with_their_tasks(with_homes, homes):
    hv = with_homes
    over, blocked, runs = task(hv, "complete"), task(hv, "block"), task(hv, "")
    for name in (over, blocked, runs, "000000000000"):
        homes.prepare(name)
    assert gc(hv, dry_run=True, now=NOW).homes == 1
    assert len(list(homes.all())) == 4
    assert gc(hv, now=NOW) == Collected(0, 0, 0, 0, 1)
    assert list(homes.all()) == sorted([blocked, runs, "000000000000"])
    assert hv.store.events(0, 99)[-1].data == {"outputs": 0, "bytes": 0, "homes": 1}
    assert gc(hv, now=NOW).homes == 0


def test_homes_of_agents_that_claim_by_themselves_go_with_their_worker(with_homes, homes):
    start = LocalHost().process_start(os.getpid()) or 0
    alive, dead = f"{os.getpid()}-{start}", f"{os.getpid()}-{start + 1}"
    homes.prepare(alive)
    homes.prepare(dead)
    assert gc(with_homes, now=NOW).homes == 1
    assert list(homes.all()) == [alive]


def test_transcripts_of_agents_that_claim_by_themselves(hv):
    """They stay while one of the tasks that their worker claimed is unfinished."""
    batch = hv.store.declare("b", {"cwd": "/", "agent": "claude"}, "me", NOW).id
    add(hv, [NewTask("t")], batch="b", now=NOW)
    new = NewSession("claude", "anthropic:login", batch, WORKER.id)
    session = hv.store.open_session(new, NOW)
    [lease] = hv.store.claim(ClaimRequest(WORKER, 1), NOW)
    keep(hv, session, days=60)
    assert gc(hv, now=NOW).outputs == 0, "it runs"
    hv.store.close_session(session, "completed", Tokens(), None, False, 1, NOW)
    assert gc(hv, now=NOW).outputs == 0, "its task is not done"
    hv.store.settle([AttemptResult(parse_token(lease.token), "complete")], NOW)
    assert gc(hv, now=NOW).outputs == 1
    assert kept(hv) == []


def test_the_changes_of_an_attempt_go_with_its_output(hv):
    old = task(hv, "complete")
    keep(hv, old, days=60)
    patch = hv.outputs.path(old, 1).removesuffix(".log") + ".patch"
    with open(patch, "w") as file:
        file.write("diff")
    gc(hv, now=NOW)
    assert not os.path.exists(patch) and not os.path.exists(os.path.dirname(patch))
