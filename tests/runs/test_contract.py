"""What the ledger promises about running work, one example each, the same on both databases."""

from __future__ import annotations

import threading
from itertools import chain, combinations, permutations

import pytest

from hypervisor.queue.history import Totals
from hypervisor.queue.lane import ClaimFilter, Lane
from hypervisor.queue.lease import AttemptResult, ClaimRequest, Usage, Worker, parse_token
from hypervisor.queue.task import Batch, Changes, NewTask
from hypervisor.runs.spec import AtWork, Pause, Ready, Running, Stop, TaskReport
from tests.queue import invariants
from tests.support.databases import dump
from tests.support.given import ANN, BOB, LEASE, NOW, claim_all, claimable
from tests.support.ledger import Ledger

SPEC = {"cwd": "/", "command": ["true", "{}"]}
RUNNER = Worker("w-run", "worker-7", "here", "boot1", 107, 3)
ALL = Pause("all", "", "why", "ann", NOW)


def kinds(ledger, since=0):
    return [event.kind for event in ledger.events(since, 10_000)]


def last_event(ledger):
    return ledger.events(0, 10_000)[-1]


@pytest.fixture
def run_batch(ledger, add):
    """Makes a batch that is run, with these tasks in it, in its order; returns its id."""

    def maker(*tasks, name="run", at=NOW):
        batch = ledger.declare(name, SPEC, "me", at)
        if tasks:
            add(*tasks, batch=name, at=at)
        return batch.id

    return maker


@pytest.fixture
def worker(ledger):
    """A registered worker of a batch."""

    def maker(batch, who=RUNNER, at=NOW):
        ledger.register(who, batch, at)
        return who

    return maker


# Declaring


def test_declaring_makes_the_batch_and_says_so(ledger, open_ledger):
    batch = ledger.declare("new", SPEC, "ann", NOW)
    assert batch == Batch(batch.id, "new", NOW, SPEC)
    assert open_ledger().batch("new") == batch
    assert [(e.kind, e.batch, e.actor) for e in ledger.events(0, 9)] == [
        ("batch", batch.id, ""),
        ("declare", batch.id, "ann"),
    ]


def test_declaring_the_same_again_writes_nothing(store, ledger, open_ledger):
    first = ledger.declare("new", SPEC, "ann", NOW)
    before = dump(store)
    assert open_ledger().declare("new", dict(SPEC), "bob", NOW + 5) == first
    assert dump(store) == before


def test_declaring_otherwise_changes_how_a_batch_is_run_from_now_on(ledger, open_ledger):
    first = ledger.declare("new", SPEC, "ann", NOW)
    changed = open_ledger().declare("new", {**SPEC, "workers": 2}, "bob", NOW + 5)
    assert changed == first._replace(spec={**SPEC, "workers": 2})
    assert ledger.batch(first.id) == changed
    last = last_event(ledger)
    assert (last.kind, last.batch, last.actor, last.at) == ("declare", first.id, "bob", NOW + 5)
    assert kinds(ledger) == ["batch", "declare", "declare"]


def test_a_batch_that_only_held_tasks_can_be_declared(ledger, add):
    add("a", batch="old")
    assert (ledger.batch("old").spec, ledger.ready()) == (None, [])
    batch = ledger.declare("old", SPEC, "me", NOW)
    assert [each.batch for each in ledger.ready()] == [batch.id]


# Pausing


@pytest.fixture
def paused_mix(ledger, add):
    """Tasks that pauses cover in all combinations; returns what each pause is and covers."""
    add(NewTask("b1 x", type="x"), NewTask("b1 y", type="y"), batch="b1")
    add(NewTask("b2 x", type="x"), NewTask("b2 keyed", type="y", exclusive=("k",)), batch="b2")
    add(NewTask("none y", type="y"), NewTask("none x", type="x", requires=("gpu",)))
    everywhere = {"b1 x", "b1 y", "b2 x", "b2 keyed", "none y", "none x"}
    return {
        ALL: everywhere,
        Pause("batch", ledger.batch("b1").id, "", "ann", NOW): {"b1 x", "b1 y"},
        Pause("type", "x", "", "ann", NOW): {"b1 x", "b2 x", "none x"},
    }


def test_a_task_is_claimable_only_if_no_pause_covers_its_lane(
    store, ledger, open_ledger, paused_mix
):
    other = open_ledger()
    everywhere = paused_mix[ALL]
    assert set(claimable(other, capabilities=("gpu",))) == everywhere
    subsets = chain.from_iterable(combinations(paused_mix, n) for n in (1, 2, 3))
    for order in chain.from_iterable(permutations(subset) for subset in subsets):
        in_force: list[Pause] = []
        steps = [(True, pause) for pause in order] + [(False, pause) for pause in order]
        for begins, pause in steps:
            assert (ledger.pause if begins else ledger.resume)(pause, NOW)
            in_force = [*in_force, pause] if begins else [p for p in in_force if p != pause]
            covered = set().union(*(paused_mix[each] for each in in_force))
            assert set(claimable(other, capabilities=("gpu",))) == everywhere - covered
            assert set(claimable(ledger, capabilities=("gpu",))) == everywhere - covered
            assert ledger.pauses() == sorted(in_force)
            invariants.check_lanes_of(store)


@pytest.mark.parametrize("scope", ["all", "batch", "type"])
def test_others_notice_a_pause_at_their_next_claim(ledger, open_ledger, run_batch, scope):
    batch = run_batch(NewTask("a", type="x"), NewTask("b", type="x"))
    other, idle = open_ledger(), open_ledger()
    for each in (other, idle):
        assert claimable(each) == ["a", "b"]
        assert [r.batch for r in each.ready()] == [batch]
    pause = Pause(scope, {"all": "", "batch": batch, "type": "x"}[scope], "", "ann", NOW)
    ledger.pause(pause, NOW)
    assert claim_all(other) == []
    assert claim_all(other, types=("x",), batch=batch) == []
    assert idle.ready() == [], "a supervisor never claims, it only looks"
    ledger.resume(pause, NOW)
    assert [r.batch for r in idle.ready()] == [batch]
    assert claim_all(other) == ["a", "b"]


def test_a_lane_made_under_a_pause_is_born_paused(store, ledger, open_ledger, add):
    other = open_ledger()
    assert claimable(other) == []
    ledger.pause(Pause("type", "x", "", "ann", NOW), NOW)
    other.add([NewTask("new lane", type="x"), NewTask("free", type="y")], "b", "me", NOW)
    invariants.check_lanes_of(store)
    assert claimable(other) == claimable(ledger) == ["free"]
    ledger.resume(Pause("type", "x", "", "ann", NOW), NOW)
    assert claimable(other) == ["new lane", "free"]


@pytest.mark.parametrize("keyed", [False, True])
def test_a_pause_is_noticed_although_a_new_lane_turns_up_with_it(ledger, open_ledger, add, keyed):
    """A claim that meets an unknown lane reads them all anew, in the middle of its choice."""
    other = open_ledger()
    ranked = sorted("abcdefgh", key=lambda t: Lane("", t, "", "medium", (), "", keyed).id)
    exclusive = ("k",) if keyed else ()
    old = [NewTask(t, type=t, exclusive=exclusive) for t in ranked[:-1]]
    add(*old, NewTask("keyed", type="z", exclusive=("l",)))
    assert claimable(other)
    ledger.pause(ALL, NOW)
    add(NewTask("new lane", type=ranked[-1], exclusive=exclusive), at=NOW + 1)
    assert claim_all(other) == []


def test_a_task_that_moves_into_a_paused_lane_stays_out_of_reach(store, ledger, add):
    task = add(NewTask("a", type="y"))
    ledger.pause(Pause("type", "x", "", "ann", NOW), NOW)
    ledger.update(task, Changes(type="x"), "me", NOW)
    assert claimable(ledger) == []
    ledger.update(task, Changes(type="y", priority="high"), "me", NOW)
    assert claimable(ledger) == ["a"]
    invariants.check_lanes_of(store)


def test_a_paused_lane_keeps_no_key_from_the_others(ledger, add):
    add(NewTask("paused", type="x", exclusive=("k",)), NewTask("free", type="y", exclusive=("k",)))
    ledger.pause(Pause("type", "x", "", "ann", NOW), NOW)
    assert claim_all(ledger) == ["free"]


def test_pausing_twice_or_resuming_what_runs_is_false_and_writes_nothing(store, ledger, add):
    add("a")
    assert not ledger.resume(ALL, NOW)
    assert ledger.pause(ALL, NOW)
    before = dump(store)
    assert not ledger.pause(ALL._replace(reason="other", actor="bob"), NOW + 1)
    assert not ledger.resume(Pause("type", "task", "", "ann", NOW), NOW + 1)
    assert not ledger.resume(Pause("batch", "", "", "ann", NOW), NOW + 1)
    assert dump(store) == before


def test_a_pause_says_who_and_why_and_leaves_its_lines_in_the_log(ledger, run_batch):
    batch = run_batch("a")
    pause = Pause("batch", batch, "too hot", "ann", 0)
    since = len(kinds(ledger))
    ledger.pause(pause, NOW + 1)
    assert ledger.pauses() == [pause._replace(at=NOW + 1)]
    ledger.resume(pause._replace(actor="bob", reason=""), NOW + 2)
    assert [(e.kind, e.batch, e.actor, e.at, e.task, e.state) for e in ledger.events(since, 9)] == [
        ("pause", batch, "ann", NOW + 1, "", None),
        ("resume", batch, "bob", NOW + 2, "", None),
    ]
    assert ledger.events(since, 1)[0].data == {"scope": "batch", "name": batch, "reason": "too hot"}
    assert ledger.pauses() == []


def test_what_was_claimed_before_a_pause_may_finish(ledger, add, claim):
    task, _ = add("a", "b")
    token = claim()
    ledger.pause(ALL, NOW)
    assert ledger.heartbeat([token], LEASE, NOW + 1) == {token}
    settled, leases = ledger.settle_and_claim(
        [AttemptResult(token, "complete")], ClaimRequest(ANN, 5, LEASE), NOW + 2
    )
    assert (settled[0].state, leases) == ("done", [])
    assert ledger.task(task).state == "done"


@pytest.mark.parametrize("limit", [1, 2])
def test_a_busy_worker_notices_a_pause_at_its_next_turn(ledger, open_ledger, add, limit):
    """One task ended and one wanted is a statement of its own, which must look as well."""
    add("a", "b", "c")
    other = open_ledger()
    request = ClaimRequest(BOB, limit, LEASE)
    leases = other.claim(request, NOW)
    turns = [AttemptResult(parse_token(lease.token), "complete") for lease in leases]
    ledger.pause(ALL, NOW)
    settled, leases = other.settle_and_claim(turns, request, NOW)
    assert [answer.state for answer in settled] == ["done"] * limit and leases == []
    ledger.resume(ALL, NOW)
    assert len(other.claim(request, NOW)) == min(limit, 3 - limit)


def test_what_becomes_ready_under_a_pause_waits_for_its_end(ledger, add, claim, settle):
    need = add("need")
    add(NewTask("later", start_at=NOW + 10), NewTask("dependent", after=(need,)))
    token = claim()
    ledger.pause(ALL, NOW)
    settle(token, "complete")
    ledger.promote_due(NOW + 10)
    assert claim_all(ledger, at=NOW + 10) == []
    ledger.resume(ALL, NOW + 10)
    assert claim_all(ledger, at=NOW + 10) == ["later", "dependent"]


def test_a_pause_reaches_many_lanes(store, ledger, open_ledger, add):
    """More lanes than a claim tries one by one."""
    other = open_ledger()
    add(*[NewTask(f"{n}", type=f"t{n}") for n in range(40)])
    assert len(claimable(other)) == 40
    ledger.pause(Pause("type", "t7", "", "ann", NOW), NOW)
    assert sorted(set(range(40)) - {int(t) for t in claimable(other)}) == [7]
    ledger.pause(ALL, NOW)
    assert claimable(other) == []
    ledger.resume(ALL, NOW)
    assert sorted(set(range(40)) - {int(t) for t in claimable(other)}) == [7]


def test_pauses_and_new_lanes_at_the_same_time(store, open_ledger):
    """Whichever comes first, a lane ends up as the pauses say."""
    adder, pauser = open_ledger(), open_ledger()
    go = threading.Barrier(2)
    problems: list[BaseException] = []

    def together(work):
        def run():
            try:
                for n in range(40):
                    go.wait(30)
                    work(n)
            except BaseException as error:
                problems.append(error)
                go.abort()

        return threading.Thread(target=run)

    def pause_or_resume(n):
        pause = Pause("type", f"t{n // 2 * 2}", "", "ann", NOW)
        assert (pauser.resume if n % 2 else pauser.pause)(pause, NOW)

    threads = [
        together(lambda n: adder.add([NewTask("a", type=f"t{n}")], None, "me", NOW)),
        together(pause_or_resume),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert problems == []
    invariants.check_lanes_of(store)
    pauser.pause(Pause("type", "t3", "", "ann", NOW), NOW)
    invariants.check_lanes_of(store)
    assert len(claimable(adder)) == 39


# Asking a worker to stop


def test_only_what_one_of_our_workers_runs_can_be_asked_to_stop(
    store, ledger, run_batch, worker, claim, settle, add
):
    batch = run_batch("a", "b", "c", "d", name="run")
    ids = [each.id for each in ledger.report(batch, "", 9, NOW)]
    foreign = claim(ANN)
    gone = claim(worker(batch, RUNNER._replace(id="w-gone", pid=108)))
    ledger.retire("w-gone", NOW)
    done = claim(worker(batch))
    settle(done, "complete")
    before = dump(store)
    for task in (foreign.task, gone.task, done.task, ids[3], "0" * 12):
        assert not ledger.ask_stop(task, "cancel", "why", "ann", NOW + 1), task
    assert dump(store) == before
    assert ledger.stops([*ids, "0" * 12]) == []


def test_a_stop_is_told_to_who_asks_and_written_down(ledger, open_ledger, run_batch, worker, claim):
    batch = run_batch("a")
    token = claim(worker(batch))
    since = len(kinds(ledger))
    assert open_ledger().ask_stop(token.task, "fail", "too loud", "ann", NOW + 1)
    assert ledger.stops(["0" * 12, token.task]) == [
        Stop(token.task, token.attempt, "fail", "too loud", "ann")
    ]
    [event] = ledger.events(since, 9)
    assert (event.kind, event.task, event.batch, event.attempt) == ("stop", token.task, batch, 1)
    assert (event.actor, event.at, event.state) == ("ann", NOW + 1, None)
    assert event.data == {"next": "fail", "reason": "too loud"}
    assert ledger.task(token.task).state == "in_progress", "the worker has the last word"


def test_the_last_word_counts_but_a_cancel_stays_one(ledger, run_batch, worker, claim):
    """Somebody was told that the task is being called off; it must not come back."""
    token = claim(worker(run_batch("a")))
    for after in ("release", "fail", "cancel"):
        assert ledger.ask_stop(token.task, after, after, "ann", NOW)
        assert [(s.next, s.reason) for s in ledger.stops([token.task])] == [(after, after)]
    for after in ("release", "fail"):
        assert ledger.ask_stop(token.task, after, after, "bob", NOW)
        assert [(s.next, s.actor) for s in ledger.stops([token.task])] == [("cancel", "ann")]


@pytest.mark.parametrize("end", ["release", "reclaim", "take_back", "cancel", "fail"])
def test_a_stop_of_an_old_attempt_is_never_reported(ledger, run_batch, worker, claim, settle, end):
    token = claim(worker(run_batch("a")))
    assert ledger.ask_stop(token.task, "cancel", "old", "ann", NOW)
    if end == "reclaim":
        [holder] = ledger.holders("boot1", NOW)
        ledger.reclaim(holder, "gone", NOW)
    elif end == "take_back":
        ledger.take_back(token.task, "", "ann", NOW)
    elif end == "cancel":
        ledger.cancel(token.task, "", "ann", NOW)
    else:
        settle(token, end, reason="r")
    assert ledger.stops([token.task]) == []
    if end in ("cancel", "fail"):
        ledger.reopen(token.task, "", "ann", NOW)
    assert ledger.stops([token.task]) == []
    again = claim(RUNNER)
    assert again.task == token.task and ledger.stops([token.task]) == []
    assert ledger.ask_stop(token.task, "fail", "new", "ann", NOW)
    assert ledger.stops([token.task]) == [Stop(token.task, 2, "fail", "new", "ann")]


def test_a_stop_can_be_forgotten(ledger, run_batch, worker, claim):
    batch = run_batch("a", "b")
    one, other = claim(worker(batch)), claim(RUNNER)
    for token in (one, other):
        ledger.ask_stop(token.task, "release", "", "ann", NOW)
    ledger.forget_stop(one.task)
    ledger.forget_stop("0" * 12)
    assert [stop.task for stop in ledger.stops([one.task, other.task])] == [other.task]


def test_many_stops_are_told_at_once(ledger, run_batch, worker):
    batch = run_batch(*[f"{n}" for n in range(700)])
    leases = ledger.claim(ClaimRequest(worker(batch), 700, LEASE), NOW)
    tasks = [lease.task.id for lease in leases]
    for task in tasks[::7]:
        ledger.ask_stop(task, "release", "", "ann", NOW)
    assert sorted(stop.task for stop in ledger.stops(tasks)) == sorted(tasks[::7])
    assert ledger.stops([]) == []


# Workers


def test_at_work_are_the_registered_ones_of_this_boot(ledger, open_ledger, run_batch, claim):
    batch = run_batch("a", "b")
    elsewhere = BOB._replace(id="w-far")
    claim(ANN)
    ledger.register(RUNNER, batch, NOW + 1)
    ledger.register(elsewhere, batch, NOW + 2)
    assert open_ledger().at_work("boot1") == [AtWork(RUNNER, batch, NOW + 1)]
    assert ledger.at_work("boot2") == [AtWork(elsewhere, batch, NOW + 2)]
    assert ledger.at_work("boot3") == []
    ledger.retire(RUNNER.id, NOW + 3)
    assert ledger.at_work("boot1") == []
    assert len(ledger.at_work("boot2")) == 1


def test_a_worker_that_has_claimed_can_register_and_change_its_batch(ledger, run_batch, claim):
    first, second = run_batch("a", name="first"), run_batch("b", name="second")
    claim(RUNNER)
    assert ledger.at_work("boot1") == []
    ledger.register(RUNNER, first, NOW + 1)
    ledger.register(RUNNER, second, NOW + 2)
    assert [(each.worker, each.batch) for each in ledger.at_work("boot1")] == [(RUNNER, second)]
    claim(RUNNER)
    assert [each.batch for each in ledger.at_work("boot1")] == [second], "a claim changes nothing"


def test_a_worker_that_registers_again_is_at_work_again(ledger, run_batch, claim):
    batch = run_batch("a")
    ledger.register(RUNNER, batch, NOW)
    ledger.retire(RUNNER.id, NOW)
    ledger.register(RUNNER, batch, NOW + 1)
    assert [each.worker for each in ledger.at_work("boot1")] == [RUNNER]
    assert ledger.ask_stop(claim(RUNNER).task, "fail", "", "ann", NOW)


# What is ready, what runs


def test_ready_are_the_run_batches_best_first(ledger, add, run_batch):
    add(NewTask("not run", priority="critical"), batch="plain")
    add(NewTask("no batch", priority="critical"))
    old = run_batch("1", NewTask("2", type="x"), NewTask("3", priority="low"), name="old")
    urgent = run_batch(NewTask("4", type="y", priority="high"), name="urgent", at=NOW + 1)
    run_batch(NewTask("idea", inbox=True), NewTask("later", start_at=NOW + 9), name="waiting")
    run_batch(name="empty")
    ready = ledger.ready()
    assert [(r.batch, r.priority, r.types, r.tasks) for r in ready] == [
        (urgent, "high", ("y",), 1),
        (old, "medium", ("task", "x"), 3),
    ]
    assert [r.rank for r in ready] == sorted(r.rank for r in ready)
    assert claim_all(ledger, batch=urgent) == ["4"]
    assert [r.batch for r in ledger.ready()] == [old]


def test_ready_is_what_a_worker_with_these_capabilities_could_claim(ledger, run_batch):
    batch = run_batch("a", NewTask("b", requires=("gpu",)), NewTask("c", assignee="ann"))
    assert [r.tasks for r in ledger.ready()] == [1]
    assert [r.tasks for r in ledger.ready(("gpu", "net"))] == [2]
    claim_all(ledger, batch=batch, assignee="")
    assert ledger.ready() == [] and len(ledger.ready(("gpu",))) == 1


def test_ready_counts_no_further_than_it_has_to(ledger, run_batch):
    batch = run_batch(*[f"{n}" for n in range(150)], *[NewTask("x", type="x")] * 5)
    [ready] = ledger.ready()
    assert ready == Ready(batch, ready.rank, "medium", ("task", "x"), 105)


def test_ready_leaves_out_what_is_paused_lane_by_lane(ledger, run_batch):
    batch = run_batch(NewTask("1", type="x"), NewTask("2", type="y"), NewTask("3", type="y"))
    ledger.pause(Pause("type", "x", "", "ann", NOW), NOW)
    assert [(r.batch, r.types, r.tasks) for r in ledger.ready()] == [(batch, ("y",), 2)]
    ledger.pause(Pause("batch", batch, "", "ann", NOW), NOW)
    assert ledger.ready() == []
    ledger.resume(Pause("type", "x", "", "ann", NOW), NOW)
    assert ledger.ready() == []


def test_running_tells_who_works_on_what_since_when(ledger, add, run_batch, claim, settle):
    batch = run_batch(NewTask("a", type="x", priority="high"), "b")
    add("elsewhere")
    first = claim(RUNNER, NOW + 1, types=("x",))
    second = claim(ANN, NOW + 3, batch=batch)
    third = claim(BOB, NOW + 2, batch="")
    rows = ledger.running(None, 9)
    assert rows == [
        Running(first.task, "a", "x", "high", batch, 1, NOW + 1, RUNNER),
        Running(third.task, "elsewhere", "task", "medium", "", 1, NOW + 2, BOB),
        Running(second.task, "b", "task", "medium", batch, 1, NOW + 3, ANN),
    ]
    assert ledger.running(batch, 9) == [rows[0], rows[2]]
    assert ledger.running(None, 2) == rows[:2]
    assert ledger.running("0" * 12, 9) == []
    settle(first, "release")
    again = claim(BOB, NOW + 9, types=("x",))
    assert [(r.task, r.attempt, r.worker) for r in ledger.running(None, 9)][-1] == (
        again.task,
        2,
        BOB,
    )


# Settings, scale, notes


def test_settings_are_kept_by_name(ledger, open_ledger):
    assert ledger.setting("peak task") is None
    ledger.set("peak task", "1000")
    ledger.set("peak task", "2000")
    ledger.set("peak ü 'x'", "3")
    other = open_ledger()
    assert (other.setting("peak task"), other.setting("peak ü 'x'")) == ("2000", "3")
    assert other.setting("peak") is None


def test_what_is_noted_once_is_noted_again_for_another_value(ledger, open_ledger):
    for each in (ledger, open_ledger()):
        for value in ("1", "1"):
            each.note_once("warned", value, "budget", {"said": value}, "me", now=NOW)
    ledger.note_once("warned", "2", "budget", {"said": "2"}, "me", now=NOW)
    said = [event.data["said"] for event in ledger.events(0, 99) if event.kind == "budget"]
    assert (said, ledger.setting("warned")) == (["1", "2"], "2")


def test_settings_are_found_by_how_their_names_begin(ledger, open_ledger):
    ledger.keep_settings({"prior a": "1", "prior b": "1", "other": "1"})
    open_ledger().set("prior a", "2")
    assert ledger.settings_like("prior") == {"prior a": "2", "prior b": "1"}


def test_scaling_sets_and_unsets_the_number_of_workers(ledger):
    batch = ledger.declare("b", SPEC, "me", NOW).id
    since = len(kinds(ledger))
    ledger.scale(4, None, "ann", NOW)
    ledger.scale(0, batch, "ann", NOW)
    assert (ledger.setting("workers"), ledger.setting(f"workers {batch}")) == ("4", "0")
    ledger.scale(None, batch, "bob", NOW + 1)
    assert (ledger.setting("workers"), ledger.setting(f"workers {batch}")) == ("4", None)
    assert [(e.kind, e.batch, e.actor, e.data) for e in ledger.events(since, 9)] == [
        ("scale", "", "ann", {"workers": 4}),
        ("scale", batch, "ann", {"workers": 0}),
        ("scale", batch, "bob", {"workers": None}),
    ]


def test_a_note_is_an_event_and_nothing_else(store, ledger, run_batch):
    batch = run_batch("a")
    task = ledger.report(batch, "", 1, NOW)[0].id
    before = dump(store)
    ledger.note("governor", {"said": "2 of 5 started"}, "supervisor", now=NOW + 1)
    ledger.note("overseer", {"limit": "time"}, "w", task, batch, NOW + 2)
    after = dump(store)
    assert {table for table in after if after[table] != before[table]} == {"events"}
    events = ledger.events(0, 99)[-2:]
    assert [(e.kind, e.task, e.batch, e.actor, e.at, e.state) for e in events] == [
        ("governor", "", "", "supervisor", NOW + 1, None),
        ("overseer", task, batch, "w", NOW + 2, None),
    ]
    assert [e.data for e in events] == [{"said": "2 of 5 started"}, {"limit": "time"}]


# What came of it


def test_usage_is_written_for_the_attempt_that_is_meant(store, ledger, add, claim, settle):
    task = add("a")
    first = claim()
    usage = Usage(7, 1500, 2048, 10_000)
    settle(first, "back_off", reason="r", retry_at=NOW + 1, usage=usage)
    ledger.promote_due(NOW + 1)
    second = claim()
    settle(second, "complete", usage=Usage(0, None, 5, None))
    assert [tuple(a[6:]) for a in ledger.detail(task).attempts] == [
        tuple(usage),
        (0, None, 5, None),
    ]
    before = dump(store)
    wrong = Usage(1, 1, 1, 1)
    assert settle(second, "complete", usage=wrong).repeated
    assert settle(second, "fail", reason="r", usage=wrong).lost
    assert settle(first, "complete", usage=wrong).lost
    assert settle(second._replace(nonce="0000"), "complete", usage=wrong).lost
    assert dump(store) == before


def test_a_turn_keeps_usage_and_result_for_the_attempt_that_ended(ledger, add):
    add("a", "b", "c")
    request = ClaimRequest(ANN, 1, LEASE)
    [lease] = ledger.claim(request, NOW)
    for n, usage in enumerate([Usage(0, 10, 20, 30), None]):
        done = parse_token(lease.token)
        verdict = AttemptResult(done, "complete", {"n": n}, usage=usage)
        [answer], [lease] = ledger.settle_and_claim([verdict], request, NOW)
        assert (answer.state, answer.repeated) == ("done", False)
        seen = ledger.detail(done.task)
        assert seen.attempts[0][6:] == (usage or Usage()) and seen.task.result == {"n": n}
        [again], _ = ledger.settle_and_claim(
            [verdict._replace(result=7, usage=Usage(9, 9, 9, 9))], None, NOW
        )
        assert again.repeated and ledger.detail(done.task) == seen
    assert ledger.detail(lease.task.id).attempts[0][6:] == (None,) * 4


def test_each_verdict_of_a_call_brings_its_own_usage(ledger, add):
    add(*"abcd")
    tokens = [parse_token(le.token) for le in ledger.claim(ClaimRequest(ANN, 4, LEASE), NOW)]
    verdicts = [
        AttemptResult(tokens[0], "complete", usage=Usage(0, 10)),
        AttemptResult(tokens[1], "complete"),
        AttemptResult(tokens[2], "fail", reason="r", usage=Usage(3)),
        AttemptResult(tokens[0], "complete", usage=Usage(9, 99)),
        AttemptResult(tokens[3]._replace(nonce="0000"), "complete", usage=Usage(9, 99)),
    ]
    ledger.settle(verdicts, NOW)
    used = [ledger.detail(token.task).attempts[0][6:] for token in tokens]
    none = (None,) * 4
    assert used == [(0, 10, None, None), none, (3, None, None, None), none]


def test_a_reclaim_of_what_had_not_started_costs_nothing(ledger, add, claim):
    task = add("a")
    for number in range(1, 6):
        claim()
        [holder] = ledger.holders("boot1", NOW)
        assert ledger.reclaim(holder, "the worker is gone", NOW, started=False)
        seen = ledger.detail(task)
        assert (seen.task.state, seen.task.crashes, seen.task.failures) == ("active", 0, 0)
        assert [a.outcome for a in seen.attempts] == ["released"] * number
    assert kinds(ledger)[-1] == "release"
    assert not ledger.reclaim(holder, "again", NOW, started=False)


def test_a_report_adds_up_a_tasks_attempts(ledger, run_batch, claim, settle):
    batch = run_batch("a", "b", "c")
    first = claim(RUNNER)
    usage = Usage(1, 1500, 300, 5)
    settle(first, "back_off", NOW + 2_000, reason="flaky", retry_at=NOW + 2_001, usage=usage)
    ledger.promote_due(NOW + 2_001)
    again = claim(RUNNER, NOW + 3_000)
    usage = Usage(0, 250, 200, 5)
    settle(again, "complete", NOW + 3_500, result={"n": 1}, usage=usage)
    open_one = claim(RUNNER, NOW + 4_000)
    rows = ledger.report(batch, "", 9, NOW + 5_000)
    assert rows == [
        TaskReport(first.task, "a", "done", None, {"n": 1}, 2, 2.5, 1.75, 300 * 1024, 0),
        TaskReport(open_one.task, "b", "in_progress", None, None, 1, 1.0, 0.0, 0, None),
        TaskReport(rows[2].id, "c", "active", None, None, 0, 0.0, 0.0, 0, None),
    ]
    states = {"active": 1, "done": 1, "in_progress": 1}
    sums = ledger.totals(batch, NOW + 5_000)
    assert sums == Totals(states, 3, 3_500, 1_750, 300, NOW, NOW + 5_000)
    assert ledger.results(batch, "", 9) == [(first.task, {"n": 1})]
    assert ledger.results(batch, first.task, 9) == []
    assert ledger.any_running(batch) and not ledger.any_running("0" * 12)
    settle(open_one, "fail", NOW + 4_100, reason="bad", usage=Usage(3))
    sums = ledger.totals(batch, NOW + 9_000)
    assert (sums.begun, sums.ended) == (NOW, NOW + 4_100)
    assert not ledger.any_running(batch)
    failed = ledger.report(batch, "", 9, NOW + 9_000)[1]
    assert (failed.state, failed.reason, failed.exit_code) == ("failed", "bad", 3)
    assert failed.seconds == 0.1


def test_reports_come_page_by_page(ledger, add, run_batch):
    batch = run_batch(*[f"{n}" for n in range(7)])
    add("other", batch="other")
    seen: list[str] = []
    pages = []
    while page := ledger.report(batch, seen[-1] if seen else "", 3, NOW):
        pages.append(len(page))
        seen += [each.id for each in page]
    assert pages == [3, 3, 1] and seen == sorted(set(seen))
    assert ledger.report("0" * 12, "", 3, NOW) == []


def test_before_the_first_attempt_there_is_nothing_to_add_up(ledger, add, run_batch):
    add("other", batch="other")
    assert ledger.totals(run_batch("a"), NOW) == Totals({"active": 1}, 0, 0, 0, 0, 0, 0)
    assert ledger.totals("0" * 12, NOW) == Totals({}, 0, 0, 0, 0, 0, 0)


def test_changed_since_counts_only_what_changed(ledger, add, run_batch, claim, settle):
    batch = run_batch("a", "b", "c")
    add("other", batch="other", at=NOW + 50)
    settle(claim(batch=batch), "fail", NOW + 10, reason="r")
    settle(claim(batch=batch), "complete", NOW + 20)
    assert ledger.changed_since(batch, NOW) == {"failed": 1, "done": 1, "active": 1}
    assert ledger.changed_since(batch, NOW + 10) == {"failed": 1, "done": 1}
    assert ledger.changed_since(batch, NOW + 11) == {"done": 1}
    assert ledger.changed_since(batch, NOW + 21) == {}


def test_states_of_those_tasks_that_there_are(ledger, add, claim, settle):
    ids = list(add(*[f"{n}" for n in range(600)]))
    settle(claim(), "complete")
    states = ledger.states([*ids, "0" * 12])
    assert states == {**dict.fromkeys(ids, "active"), ids[0]: "done"}
    assert ledger.states([]) == {} and ledger.states(["0" * 12]) == {}


def test_stuck_are_those_whose_need_has_ended_badly_also_through_others(
    ledger, add, run_batch, claim, settle
):
    first, second = run_batch(name="first"), run_batch(name="second")
    one, two = add("a", "b", batch="first")
    after_one = add(NewTask("c", after=(one,)), batch="second")
    add(NewTask("d", after=(after_one,)), NewTask("e", after=(two,)), batch="second")
    assert ledger.stuck([first, second]) == {}
    settle(claim(batch=first), "fail", reason="r")
    assert ledger.stuck([first, second]) == {second: 2}
    settle(claim(batch=first), "complete")
    assert ledger.stuck([second]) == {second: 2}
    assert ledger.stuck([first]) == {} and ledger.stuck([]) == {}
    ledger.reopen(one, "again", "ann", NOW)
    assert ledger.stuck([first, second]) == {}


def test_a_claim_of_a_worker_skips_other_batches_under_pauses(ledger, run_batch, worker):
    """A worker asks for its batch only; a pause of that batch leaves it with nothing."""
    first, second = run_batch("a", name="first"), run_batch("b", name="second")
    ledger.pause(Pause("batch", first, "", "ann", NOW), NOW)
    wanted = ClaimFilter(batch=first)
    assert ledger.claim(ClaimRequest(worker(first), 9, LEASE, wanted), NOW) == []
    assert claim_all(ledger, batch=second) == ["b"]


def test_a_failed_write_does_not_leave_a_false_pause_behind(store, ledger, add, monkeypatch):
    """What was seen of lanes in a transaction that was rolled back is forgotten with it."""
    add("a")

    def breaks(*_):
        raise RuntimeError("the disk is on fire")

    from hypervisor.runs import sql

    monkeypatch.setattr(sql, "_log_pause", breaks)
    with pytest.raises(RuntimeError):
        ledger.pause(ALL, NOW)
    assert ledger.pauses() == [] and claimable(ledger) == ["a"]
    invariants.check_lanes_of(store)


def test_every_ledger_method_of_running_work_is_tested_here():
    """A new method of this part of the port needs its example in this file."""
    import inspect
    from pathlib import Path

    source = inspect.getsource(Ledger)
    part = source.partition("# Running work")[2].partition("# Receipts")[0]
    methods = [line.split("(")[0].split()[1] for line in part.split("\n") if line[:8] == "    def "]
    text = Path(__file__).read_text(encoding="utf-8")
    assert [name for name in methods if f".{name}(" not in text] == []
