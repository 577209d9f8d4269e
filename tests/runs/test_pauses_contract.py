"""Pauses on both databases: what they cover, and who notices them."""

from __future__ import annotations

import threading
from itertools import chain, combinations, permutations

import pytest

from hypervisor.queue.lane import ClaimFilter, Lane
from hypervisor.queue.lease import AttemptResult, ClaimRequest, parse_token
from hypervisor.queue.pause import INTERRUPTED, Pause
from hypervisor.queue.task import Changes, NewTask
from tests.queue import invariants
from tests.runs.declared_batches import ALL, kinds
from tests.support.databases import dump
from tests.support.given import ANN, BOB, LEASE, NOW, claim_all, claimable


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
    """A claim that finds an unknown lane reads all of them again, in the middle of its choice."""
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
    """Completing one task and claiming one is a separate statement, which must notice pauses as
    well."""
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
                    go.wait(180)
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
        thread.join(180)
    assert problems == []
    invariants.check_lanes_of(store)
    pauser.pause(Pause("type", "t3", "", "ann", NOW), NOW)
    invariants.check_lanes_of(store)
    assert len(claimable(adder)) == 39


def test_a_claim_of_a_worker_skips_other_batches_under_pauses(ledger, run_batch, worker):
    """A worker asks for its batch only; a pause of that batch leaves it with nothing."""
    first, second = run_batch("a", name="first"), run_batch("b", name="second")
    ledger.pause(Pause("batch", first, "", "ann", NOW), NOW)
    wanted = ClaimFilter(batch=first)
    assert ledger.claim(ClaimRequest(worker(first), 9, LEASE, wanted), NOW) == []
    assert claim_all(ledger, batch=second) == ["b"]


def test_a_failed_write_does_not_leave_a_false_pause_behind(store, ledger, add, monkeypatch):
    """Lanes that were read in a transaction that was rolled back are forgotten."""
    add("a")

    def breaks(*_):
        raise RuntimeError("the disk is on fire")

    from hypervisor.queue.sql import pauses

    monkeypatch.setattr(pauses, "_log_pause", breaks)
    with pytest.raises(RuntimeError):
        ledger.pause(ALL, NOW)
    assert ledger.pauses() == [] and claimable(ledger) == ["a"]
    invariants.check_lanes_of(store)


def test_a_person_takes_over_the_pause_of_an_interrupted_run(ledger):
    """So that running the batch again does not lift it."""
    interrupted, asked_for = (Pause("type", "x", why, "ann", NOW) for why in (INTERRUPTED, ""))
    assert ledger.pause(interrupted, NOW)
    assert ledger.pause(asked_for, NOW + 1)
    assert not ledger.pause(interrupted, NOW + 2)
    assert ledger.pauses() == [asked_for._replace(at=NOW + 1)]
