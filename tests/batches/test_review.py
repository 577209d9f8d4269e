"""Checkpoints as operations: what is shown about a chunk, what a decision does, the files of a
chunk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from hypervisor.batches import review as reviewing
from hypervisor.batches import submit
from hypervisor.batches.chunk import HELD, span_name
from hypervisor.batches.chunk_reporter import PAUSE_MS, ChunkReporter
from hypervisor.batches.cut_chunks import Cut, Numbering, check_cut
from hypervisor.batches.files import BatchFiles
from hypervisor.batches.sql import chunks
from hypervisor.core.errors import InvalidInput, NotFound, WrongState
from hypervisor.inputs.template import Item
from hypervisor.queue.context import Context
from hypervisor.queue.lease import AttemptResult, ClaimRequest, parse_token
from hypervisor.queue.task import NewTask
from hypervisor.runs.outputs.files import Outputs
from hypervisor.store.sqlite import SqliteDatabase
from tests.support.intercept import intercept
from tests.support.ledger import Ledger
from tests.support.parts import parts
from tests.support.specs import run_spec
from tests.support.submitted_runs import HERE, LEASE, NOW, FakeHost, FakeLauncher


@pytest.fixture
def hv(tmp_path):
    launcher: Any = FakeLauncher()
    outputs, files = Outputs(str(tmp_path)), BatchFiles(str(tmp_path))
    given = parts(launcher=launcher, outputs=outputs, batch_files=files)
    store = Ledger(SqliteDatabase(str(tmp_path / "x.db"), relaxed=True))
    context = Context(store, FakeHost(), "ann", parts=given)
    yield context
    context.close()


def start(hv, gate="each", chunks=("jan", "feb", "mar"), each=3, folder="/"):
    tasks = [
        NewTask(f"{name} {n}", key=f"{name} {n}", chunk=place, data={"item": f"{name} {n}"})
        for place, name in enumerate(chunks, 1)
        for n in range(each)
    ]
    spec = run_spec(folder, ("true",), gate=gate)
    return submit.submit(hv, spec, tasks, "b", NOW, chunks=chunks)


def work(hv, results=None, event="complete", now=NOW):
    """Complete what can be claimed, with the `results` in order."""
    leases = hv.store.claim(ClaimRequest(HERE, 100, LEASE), now)
    for number, lease in enumerate(leases):
        result = results[number % len(results)] if results else None
        reason = None if event == "complete" else "no luck"
        hv.store.settle([AttemptResult(parse_token(lease.token), event, result, reason)], now + 100)
    return [lease.task.title for lease in leases]


def test_a_batch_is_worked_on_chunk_by_chunk(hv):
    start(hv)
    assert reviewing.awaiting(hv) == ()
    assert work(hv) == ["jan 0", "jan 1", "jan 2"]
    [(batch, chunk)] = reviewing.awaiting(hv)
    assert (batch.name, chunk.name) == ("b", "jan")
    done = reviewing.decide(hv, "b", "approved", note="good", now=NOW)
    assert (done.chunk, done.opened) == (1, (2,))
    assert (hv.launcher.started, hv.launcher.kept[-1]) == (1, batch.id)
    assert work(hv) == ["feb 0", "feb 1", "feb 2"]
    reviewing.decide(hv, "b", "rejected", note="bad", now=NOW)
    assert work(hv) == ["mar 0", "mar 1", "mar 2"]
    assert [c.state for c in reviewing.chunks(hv, "b")] == ["approved", "rejected", "open"]


def test_the_rest_can_be_approved_in_advance(hv):
    start(hv)
    work(hv)
    assert reviewing.decide(hv, "b", "approved", rest=True, now=NOW).opened == (2, 3)
    assert len(work(hv)) == 6
    assert reviewing.awaiting(hv) == ()
    assert {c.state for c in reviewing.chunks(hv, "b")[1:]} == {"free"}


def test_a_changed_mind_lets_nothing_go(hv):
    start(hv)
    work(hv)
    reviewing.decide(hv, "b", "approved", now=NOW)
    assert reviewing.decide(hv, "b", "rejected", 1, now=NOW).opened == ()
    assert reviewing.decide(hv, "b", "approved", 1, now=NOW).opened == ()
    assert [c.state for c in reviewing.chunks(hv, "b")] == ["approved", "open", "held"]
    work(hv)
    reviewing.decide(hv, "b", "approved", now=NOW)
    work(hv)
    reviewing.decide(hv, "b", "approved", now=NOW)
    with pytest.raises(WrongState, match="no chunk of b is waiting"):
        reviewing.decide(hv, "b", "rejected", now=NOW)


def test_what_comes_later_into_a_decided_chunk_is_not_decided(hv):
    batch = start(hv).batch
    work(hv)
    reviewing.decide(hv, "b", "approved", now=NOW)
    hv.store.add([NewTask("late", chunk=1)], "b", "me", NOW)
    assert reviewing.chunks(hv, "b")[0].state == "open"
    work(hv)
    reviewing.decide(hv, "b", "approved", 1, now=NOW)
    hv.store.reopen(hv.store.chunk_tasks(batch.id, 1)[0].id, "", "me", NOW)
    assert reviewing.chunks(hv, "b")[0].state == "open"


def test_the_gate_after_the_first_is_the_only_one(hv):
    start(hv, gate="first")
    work(hv)
    assert reviewing.decide(hv, "b", "approved", now=NOW).opened == (2, 3)
    work(hv)
    assert reviewing.awaiting(hv) == ()


def test_the_gate_after_the_first_does_not_ask_of_the_only_one(hv):
    start(hv, gate="first", chunks=["jan"])
    work(hv)
    assert reviewing.awaiting(hv) == ()


def test_a_checkpoint_shows_counts_samples_and_failures(hv):
    start(hv, each=30)
    results = [
        {"category": "fyi", "rationale": "short"},
        {"category": "fyi", "rationale": "a very long explanation " * 9},
        {"category": "task", "rationale": "do", "actions": [{"do": "move"}, "x", {}]},
        "just text",
    ]
    work(hv, results)
    found = reviewing.review(hv, "b", now=NOW)
    assert found.categories == {"fyi": 16, "task": 7, "(none)": 7}
    assert found.proposals == {"move": 7, "unknown": 7}
    assert {s.category for s in found.samples} == {"fyi", "task", "(none)"}
    assert any(s.why == "unusual text" for s in found.samples if s.category == "fyi")
    assert found.next == "chunk 2 (feb) with 30 tasks would run next"
    reviewing.decide(hv, "b", "approved", now=NOW)
    work(hv, event="fail")
    found = reviewing.review(hv, "b", now=NOW)
    assert (len(found.failures), found.failures[0].reason) == (20, "no luck")


def while_deciding(hv, monkeypatch, act):
    """Do something else after a decision was prepared and before it is made."""
    acts = [act]

    def later(decide, *args, **options):
        if acts:
            acts.pop()()
        return decide(*args, **options)

    intercept(monkeypatch, hv.store, chunks.decide, later)


def test_a_chunk_that_is_added_while_the_last_one_is_approved_is_opened(hv, monkeypatch):
    batch = start(hv).batch.id
    while [each.state for each in reviewing.chunks(hv, "b")].count(HELD):
        work(hv)
        reviewing.decide(hv, "b", "approved", now=NOW)
    work(hv)
    while_deciding(hv, monkeypatch, lambda: hv.store.declare_chunks(batch, ["late"], "each"))
    done = reviewing.decide(hv, "b", "approved", now=NOW)
    assert (reviewing.chunks(hv, "b")[-1].state, len(done.opened)) == ("open", 1)


def test_of_two_who_decide_at_once_the_second_changes_nothing(hv, monkeypatch):
    start(hv)
    work(hv)
    while_deciding(hv, monkeypatch, lambda: reviewing.decide(hv, "b", "approved", now=NOW))
    with pytest.raises(WrongState, match="already approved"):
        reviewing.decide(hv, "b", "rejected", now=NOW)
    assert reviewing.chunks(hv, "b")[0].state == "approved"


def test_a_retry_brings_the_note_to_the_worker(hv):
    start(hv)
    work(hv)
    first = hv.store.chunk_tasks(reviewing.awaiting(hv)[0][0].id, 1)[0]
    done = reviewing.retry_chunk(hv, "b", "look closer", tasks=[first.id], now=NOW)
    assert (done.tasks, reviewing.awaiting(hv)) == (1, ())
    [lease] = hv.store.claim(ClaimRequest(HERE, 9, LEASE), NOW)
    assert lease.task.data["note"] == "look closer"
    with pytest.raises(NotFound, match="not in chunk 1"):
        reviewing.retry_chunk(hv, "b", "", 1, [hv.store.chunk_tasks(lease.task.batch, 2)[0].id])


def test_single_items_can_be_corrected(hv):
    start(hv)
    work(hv, [{"category": "fyi", "rationale": "why"}])
    task = hv.store.list_tasks(running_filter(), 9)[-1]
    assert reviewing.amend(hv, task.id, {"category": "task", "rationale": None}, NOW) == {
        "category": "task"
    }
    [line] = hv.store.receipts_of_task(task.id)
    assert "'fyi' → 'task'" in line.text
    with pytest.raises(InvalidInput, match="nothing to correct"):
        reviewing.amend(hv, task.id, {})
    with pytest.raises(WrongState):
        reviewing.amend(hv, hv.store.chunk_tasks(task.batch, 2)[0].id, {"category": "x"})


def running_filter():
    from hypervisor.queue.task import TaskFilter

    return TaskFilter(states=("done",))


def test_a_retry_of_the_chunk_keeps_what_a_person_has_corrected(hv):
    start(hv)
    work(hv, [{"category": "fyi"}])
    first, second, third = hv.store.chunk_tasks(reviewing.awaiting(hv)[0][0].id, 1)
    reviewing.amend(hv, second.id, {"category": "task"}, NOW)
    done = reviewing.retry_chunk(hv, "b", "look closer", now=NOW)
    assert (done.tasks, done.kept) == (2, 1)
    assert work(hv, [{"category": "fyi"}]) == [first.title, third.title]
    assert hv.store.task(second.id).result["category"] == "task"

    again = reviewing.retry_chunk(hv, "b", "", tasks=[second.id], now=NOW)
    assert (again.tasks, again.kept) == (1, 0), "named, it is tried again"
    assert work(hv, [{"category": "spam"}]) == [second.title]
    assert reviewing.retry_chunk(hv, "b", "", now=NOW).tasks == 3, "the correction is gone"


def test_a_task_without_data_keeps_its_correction_and_gets_the_note(hv):
    tasks = [NewTask(title, key=title, chunk=1) for title in "ab"]
    submit.submit(hv, run_spec("/", ("true",), gate="each"), tasks, "b", NOW, chunks=["all"])
    work(hv, [{"category": "fyi"}])
    first, second = hv.store.chunk_tasks(reviewing.awaiting(hv)[0][0].id, 1)
    reviewing.amend(hv, second.id, {"category": "task"}, NOW)
    done = reviewing.retry_chunk(hv, "b", "look closer", now=NOW)
    assert (done.tasks, done.kept) == (1, 1)
    assert hv.store.task(first.id).data == {"note": "look closer"}


def test_a_correction_changes_the_proposed_edit_too(hv):
    start(hv)
    fields = {"assignee": "bot", "complexity": "simple"}
    edit = {"do": "edit", "path": "a.md", "set": fields}
    move = {"do": "move", "path": "a.md", "to": "b.md"}
    work(hv, [{"category": "fyi", "assignee": "bot", "actions": [edit, move]}])
    task = hv.store.list_tasks(running_filter(), 9)[-1]
    changes = {"assignee": "ann", "complexity": None}
    result = reviewing.amend(hv, task.id, changes, NOW)
    assert result["assignee"] == "ann"
    assert result["actions"] == [{**edit, "set": {"assignee": "ann"}}, move]
    assert reviewing.amend(hv, task.id, {"assignee": None}, NOW)["actions"] == [move]


def test_decisions_that_make_no_sense_are_refused(hv):
    start(hv)
    with pytest.raises(InvalidInput):
        reviewing.decide(hv, "b", cast(Any, "maybe"))
    with pytest.raises(WrongState):
        reviewing.decide(hv, "b", "approved")
    with pytest.raises(NotFound):
        reviewing.decide(hv, "b", "approved", 7)
    hv.store.add([NewTask("x")], "plain", "me", NOW)
    with pytest.raises(NotFound, match="has no chunks"):
        reviewing.review(hv, "plain")


class TestFiles:
    def read(self, hv, name):
        return (Path(hv.batch_files.folder("b")) / name).read_text(encoding="utf-8")

    def test_they_appear_while_a_chunk_proceeds_and_are_complete_at_its_end(self, hv):
        batch = start(hv).batch
        active = [batch.id]
        reporter = ChunkReporter(hv, lambda: active)
        [lease] = hv.store.claim(ClaimRequest(HERE, 1, LEASE), NOW)
        result = {"category": "fyi", "rationale": "because <b>\n## x", "actions": [{"do": "move"}]}
        hv.store.settle([AttemptResult(parse_token(lease.token), "complete", result)], NOW)
        reporter.tick(NOW)
        active.clear()
        summary = json.loads(self.read(hv, "chunk-01-summary.json"))
        assert (summary["processed"], summary["total"], summary["complete"]) == (1, 3, False)
        work(hv, event="fail")
        reporter.tick(NOW + PAUSE_MS - 1)
        assert json.loads(self.read(hv, "chunk-01-summary.json"))["processed"] == 1
        reporter.tick(NOW + PAUSE_MS)
        summary = json.loads(self.read(hv, "chunk-01-summary.json"))
        assert (summary["processed"], summary["complete"]) == (3, True)
        assert summary["categories"] == {"fyi": 1}
        assert len(summary["failures"]) == 2
        details = self.read(hv, "chunk-01-details.md")
        assert "- rationale: because &lt;b> ## x" in details
        assert "- failed: no luck" in details
        assert details.count("\n## ") == 3
        assert not (Path(hv.batch_files.folder("b")) / "chunk-02-summary.json").exists()

    def test_a_later_process_writes_the_same(self, hv):
        batch = start(hv, gate="none").batch
        work(hv, [{"category": "a"}])
        ChunkReporter(hv, lambda: [batch.id]).tick(NOW)
        first = self.read(hv, "chunk-03-details.md")
        ChunkReporter(hv, lambda: [batch.id]).tick(NOW + 5)
        assert self.read(hv, "chunk-03-details.md") == first

    def test_hostile_names_stay_inside_and_apart(self, tmp_path):
        files = BatchFiles(str(tmp_path))
        names = ["../../x", "..", "a/b", "a-b", "a b", "ü" * 300, "\ud800", "", "x\0y"]
        folders = {files.folder(name) for name in names}
        assert len(folders) == len(names)
        assert all(Path(folder).parent == tmp_path / "batches" for folder in folders)


class TestCutting:
    def test_by_time(self):
        assert span_name("month", "2026-03-05T10:00") == "2026-03"
        assert span_name("week", "2027-01-01") == "2026-W53"
        assert span_name("day", "2026-03-05") == "2026-03-05"
        assert span_name("day", "soon") == span_name("day", None) == "undated"

    def test_the_oldest_comes_first_and_the_undated_last(self):
        numbering = Numbering(Cut(span="month"))
        dated = [Item("a", 1, {"date": "2026-05-01"}), Item("b", 2, {"date": "2026-01-09"})]
        undated = Item("no file of this name", 3)
        for item in (undated, *dated):
            numbering.see(item)
        assert numbering.names == ["2026-01", "2026-05", "undated"]
        assert [numbering.place(item) for item in (*dated, undated)] == [2, 1, 3]

    def test_by_field_and_by_size(self):
        by_field = Numbering(Cut(field="from"))
        for sender in ("b", "a", "", "b"):
            by_field.see(Item("x", 1, {"from": sender}))
        assert by_field.names == ["a", "b", "none"]
        by_size = Numbering(Cut(size=10))
        for number in (1, 10, 11, 101):
            by_size.see(Item("x", number))
        assert by_size.names == ["1", "2", "11"]

    def test_nonsense_is_refused(self):
        for cut in (Cut("month", "x"), Cut(size=0), Cut(field=""), Cut(span="year")):
            with pytest.raises(InvalidInput):
                check_cut(cut)
        many = Numbering(Cut(size=1))
        with pytest.raises(InvalidInput, match="too many to review"):
            for number in range(1, 20_000):
                many.see(Item("x", number))
