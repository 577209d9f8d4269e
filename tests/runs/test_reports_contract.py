"""Declared batches on both databases: how they are run, settings, usage and reports."""

from __future__ import annotations

from pathlib import Path

from hypervisor.agents.sql import budget_warnings
from hypervisor.queue.history import Totals
from hypervisor.queue.lease import AttemptResult, ClaimRequest, Usage, parse_token
from hypervisor.queue.task import Batch, NewTask
from hypervisor.runs.spec import TaskReport
from tests.runs.declared_batches import RUNNER, SPEC, kinds, last_event
from tests.support.databases import dump
from tests.support.given import ANN, LEASE, NOW
from tests.support.ledger.runs import RunsLedger

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


# Settings, scale, notes


def test_settings_are_kept_by_name(ledger, open_ledger):
    assert ledger.setting("a") is None
    ledger.set("a", "1000")
    ledger.set("a", "2000")
    ledger.set("ü 'x'", "3")
    other = open_ledger()
    assert (other.setting("a"), other.setting("ü 'x'")) == ("2000", "3")
    other.set("a", None)
    assert ledger.setting("a") is None


def test_memory_peaks_are_kept_by_type_and_by_agent(ledger, open_ledger):
    assert ledger.memory_peak("task") is None
    ledger.set_memory_peak(1000, "task")
    ledger.set_memory_peak(1 << 60, "task")
    ledger.set_memory_peak(3, agent="task")
    other = open_ledger()
    assert (other.memory_peak("task"), other.memory_peak(agent="task")) == (1 << 60, 3)
    assert other.memory_peak() is None


def test_a_budget_warning_is_written_once_per_budget(ledger, open_ledger):
    batch, other = (ledger.declare(name, SPEC, "me", NOW).id for name in ("b", "other"))
    for each in (ledger, open_ledger()):
        for budget in ("1", "1"):
            each.write(budget_warnings.warn, batch, budget, f"{budget} spent", "me", now=NOW)
    ledger.write(budget_warnings.warn, batch, "2", "2 spent", "me", now=NOW)
    said = [event.data["message"] for event in ledger.events(0, 99) if event.kind == "budget"]
    assert said == ["1 spent", "2 spent"]
    assert ledger.read(budget_warnings.warned_budget, batch) == "2"
    assert ledger.read(budget_warnings.warned_budget, other) == ""


def test_scaling_sets_and_unsets_the_number_of_workers(ledger):
    batch = ledger.declare("b", SPEC, "me", NOW).id
    since = len(kinds(ledger))
    ledger.scale(4, None, "ann", NOW)
    ledger.scale(0, batch, "ann", NOW)
    assert (ledger.scaled_workers(), ledger.scaled_workers(batch)) == (4, 0)
    ledger.scale(None, batch, "bob", NOW + 1)
    assert (ledger.scaled_workers(), ledger.scaled_workers(batch)) == (4, None)
    assert [(e.kind, e.batch, e.actor, e.data) for e in ledger.events(since, 9)] == [
        ("scale", "", "ann", {"workers": 4}),
        ("scale", batch, "ann", {"workers": 0}),
        ("scale", batch, "bob", {"workers": None}),
    ]


def test_a_note_is_an_event_and_nothing_else(store, ledger, run_batch):
    batch = run_batch("a")
    task = ledger.report(batch, "", 1, NOW)[0].id
    before = dump(store)
    ledger.note("governor", {"message": "2 of 5 started"}, "supervisor", now=NOW + 1)
    ledger.note("overseer", {"limit": "time"}, "w", task, batch, NOW + 2)
    after = dump(store)
    assert {table for table in after if after[table] != before[table]} == {"events"}
    events = ledger.events(0, 99)[-2:]
    assert [(e.kind, e.task, e.batch, e.actor, e.at, e.state) for e in events] == [
        ("governor", "", "", "supervisor", NOW + 1, None),
        ("overseer", task, batch, "w", NOW + 2, None),
    ]
    assert [e.data for e in events] == [{"message": "2 of 5 started"}, {"limit": "time"}]


# Outcomes


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


def test_changed_among_counts_the_tasks_that_are_named(ledger, add, claim, settle):
    ids = list(add(*[f"{n}" for n in range(600)]))
    settle(claim(), "complete", NOW + 10)
    settle(claim(), "fail", NOW + 20, reason="r")
    assert ledger.changed_among([*ids, "0" * 12], NOW + 1) == 2
    assert ledger.changed_among(ids, NOW + 11) == 1
    assert ledger.changed_among(ids[2:], NOW + 1) == 0
    assert ledger.changed_among([], NOW) == 0


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


def test_every_ledger_method_of_running_work_is_tested_here():
    """A new method of this part of the ledger needs its example in a contract."""
    contracts = Path(__file__).parents[1].rglob("test_*contract.py")
    text = "".join(path.read_text(encoding="utf-8") for path in contracts)
    methods = [name for name in vars(RunsLedger) if not name.startswith("_")]
    assert "pause" in methods
    assert [name for name in methods if f".{name}(" not in text] == []
