"""Task files show what is in the store, and no change of their owner is lost."""

from __future__ import annotations

from typing import Any

import pytest

from hypervisor.batches import submit
from hypervisor.batches.files import BatchFiles
from hypervisor.batches.receipts import verify, write_receipts
from hypervisor.batches.review import amend
from hypervisor.batches.write_back import unwritten, write_back
from hypervisor.inputs.task_files.files import TaskFiles
from hypervisor.queue.context import Context
from hypervisor.queue.lease import AttemptResult, ClaimRequest, parse_token
from hypervisor.queue.receipts import receipt
from hypervisor.queue.task import NewTask
from hypervisor.runs.outputs.files import Outputs
from hypervisor.store.sqlite import SqliteDatabase
from tests.support.ledger import Ledger
from tests.support.parts import parts
from tests.support.specs import run_spec
from tests.support.submitted_runs import HERE, LEASE, NOW, FakeHost, FakeLauncher

TEXT = b"---\r\n# mine\r\nstatus: todo # later\r\ntags: [a,  b]\r\n---\r\nBody\r\n"


@pytest.fixture
def hv(tmp_path):
    launcher: Any = FakeLauncher()
    given = parts(
        launcher=launcher,
        outputs=Outputs(str(tmp_path)),
        batch_files=BatchFiles(str(tmp_path)),
        task_files=TaskFiles(str(tmp_path / "locks")),
    )
    store = Ledger(SqliteDatabase(str(tmp_path / "x.db"), relaxed=True))
    context = Context(store, FakeHost(), "ann", parts=given)
    (tmp_path / "a.md").write_bytes(TEXT)
    yield context
    context.close()


def start(hv, tmp_path, mode, propose=False):
    data = {"item": "a.md", "columns": {"path": "a.md", "status": "todo"}}
    spec = run_spec(str(tmp_path), ("true",), write_back=mode, propose=propose)
    submit.submit(hv, spec, [NewTask("a", key="a.md", data=data)], "b", NOW)
    [lease] = hv.store.claim(ClaimRequest(HERE, 1, LEASE), NOW)
    return parse_token(lease.token)


def end(hv, token, event="complete", result=None, reason=None, receipts=()):
    hv.store.settle([AttemptResult(token, event, result, reason, receipts=receipts)], NOW)
    return write_back(hv, [token.task], edits=True)


def text(tmp_path):
    return (tmp_path / "a.md").read_bytes()


def test_the_front_matter_shows_how_far_it_is(hv, tmp_path):
    token = start(hv, tmp_path, "status")
    assert write_back(hv, [token.task])
    assert b"status: in_progress # later\r\n" in text(tmp_path)
    assert b"assignee: hypervisor\r\n" in text(tmp_path)
    assert end(hv, token, result={"summary": "all\ngood"}, receipts=("looked",))
    said = text(tmp_path)
    assert b"status: done # later\r\n" in said and b"summary: all good\r\n" in said
    assert said.startswith(b"---\r\n# mine\r\n") and b"tags: [a,  b]\r\n" in said
    assert b"looked" in said and said.count(b"## Receipts") == 1
    assert not write_back(hv, [token.task])  # nothing new
    assert verify(hv)[0].problem is None


def test_a_task_that_goes_back_gets_its_old_status(hv, tmp_path):
    token = start(hv, tmp_path, "status")
    write_back(hv, [token.task])
    end(hv, token, "release")
    assert b"status: todo # later" in text(tmp_path)


def test_receipts_alone_leave_the_rest_of_the_file_alone(hv, tmp_path):
    token = start(hv, tmp_path, "receipts")
    assert not end(hv, token)
    assert text(tmp_path) == TEXT
    receipt(hv, token.task, ["a person was here"], NOW)
    assert text(tmp_path).startswith(TEXT) and b"a person was here" in text(tmp_path)


@pytest.mark.parametrize("mode", ["receipts", "status"])
def test_a_run_that_only_proposes_changes_no_file(hv, tmp_path, mode):
    token = start(hv, tmp_path, mode, propose=True)
    assert not end(hv, token, result={"category": "fyi"}, receipts=("looked",))
    amend(hv, token.task, {"category": "task"}, NOW)
    write_back(hv, [token.task], run_spec(str(tmp_path), write_back=mode, propose=True))
    assert text(tmp_path) == TEXT
    assert unwritten(hv, "b") == []
    assert [line.text[:9] for line in hv.store.receipts_of_task(token.task)] == [
        "looked",
        "corrected",
    ]
    assert verify(hv)[0].problem is None


def test_an_edit_is_made_unless_the_owner_was_quicker(hv, tmp_path):
    token = start(hv, tmp_path, "receipts")
    (tmp_path / "a.md").write_bytes(TEXT.replace(b"todo", b"doing"))
    edit = {
        "set": {"status": "done", "size": "S", "x": None},
        "was": {"status": "todo"},
        "lines": ["[[p]]", 7, "two\nlines", ""],
    }
    end(hv, token, result={"edit": edit}, receipts=("triaged",))
    said = text(tmp_path)
    assert b"status: doing # later" in said and b"size: S\r\n" in said
    assert b"[[p]]\r\n" in said and b"two" not in said


@pytest.mark.parametrize("edit", [7, [], {"set": 3}, {"set": {"a": object}, "lines": "x"}, {}])
def test_an_edit_that_makes_no_sense_is_none(hv, tmp_path, edit):
    token = start(hv, tmp_path, "receipts")
    if isinstance(edit, dict) and isinstance(edit.get("set"), dict):
        edit = {**edit, "set": {}}
    end(hv, token, result={"edit": edit})
    assert text(tmp_path) == TEXT


def test_a_file_that_cannot_be_written_is_reported_and_stops_nothing(hv, tmp_path):
    token = start(hv, tmp_path, "status")
    (tmp_path / "a.md").write_bytes(b"---\na: [\n---\n")
    assert not end(hv, token)
    assert text(tmp_path) == b"---\na: [\n---\n"
    said = [e.data["message"] for e in hv.store.events(0, 99) if e.kind == "file"]
    assert said and "cannot write its file" in said[0]
    batch = hv.store.batch("b")
    assert [each.task for each in unwritten(hv, batch.id)] == [token.task]
    assert unwritten(hv, batch.id, hv.now() + 10**9) == []
    (tmp_path / "a.md").unlink()
    assert not write_back(hv, [token.task])


def test_a_line_that_was_edited_in_the_file_is_found(hv, tmp_path):
    token = start(hv, tmp_path, "receipts")
    end(hv, token, receipts=("archived 3 mails", "and more"))
    assert verify(hv)[0].problem is None
    (tmp_path / "a.md").write_bytes(text(tmp_path).replace(b"3 mails", b"2 mails"))
    assert "a.md" in (verify(hv)[0].problem or "")


def test_lines_of_another_run_over_the_same_file_are_not_a_forgery(hv, tmp_path):
    token = start(hv, tmp_path, "receipts")
    end(hv, token, receipts=("first",))
    data = {"item": "a.md", "columns": {"path": "a.md"}}
    spec = run_spec(str(tmp_path), ("true",), write_back="receipts")
    submit.submit(hv, spec, [NewTask("a", key="a.md", data=data)], "c", NOW)
    [lease] = hv.store.claim(ClaimRequest(HERE, 1, LEASE), NOW)
    end(hv, parse_token(lease.token), receipts=("second",))
    assert [report.problem for report in verify(hv)] == [None, None]


def test_what_the_owner_takes_back_later_stays_taken_back(hv, tmp_path):
    token = start(hv, tmp_path, "receipts")
    edit = {"set": {"status": "done"}, "was": {"status": "todo"}, "lines": ["[[p]]"]}
    end(hv, token, result={"edit": edit}, receipts=("triaged",))
    mine = text(tmp_path).replace(b"status: done", b"status: todo").replace(b"[[p]]", b"")
    (tmp_path / "a.md").write_bytes(mine)
    receipt(hv, token.task, ["looked again"], NOW)
    assert b"status: todo" in text(tmp_path) and b"[[p]]" not in text(tmp_path)


def test_a_status_that_its_owner_has_set_in_the_meantime_stays(hv, tmp_path):
    token = start(hv, tmp_path, "status")
    write_back(hv, [token.task])
    mine = text(tmp_path).replace(b"status: in_progress", b"status: frozen")
    (tmp_path / "a.md").write_bytes(mine)
    end(hv, token)
    assert b"status: frozen" in text(tmp_path)


def test_what_could_not_be_written_is_written_later(hv, tmp_path):
    token = start(hv, tmp_path, "receipts")
    (tmp_path / "a.md").rename(tmp_path / "away.md")
    assert not end(hv, token, receipts=("done it",))
    assert write_receipts(hv, "b") == 0
    (tmp_path / "away.md").rename(tmp_path / "a.md")
    assert write_receipts(hv, "b") == 1
    assert b"done it" in text(tmp_path) and verify(hv)[0].problem is None


def test_what_ended_together_is_written_together(hv, tmp_path):
    """An edit, only receipts, nothing, a file that is not a task: each is handled as if it were
    alone."""
    names = ("edit", "receipt", "nothing", "broken", "gone")
    for name in names:
        (tmp_path / f"{name}.md").write_bytes(b"---\na: [\n---\n" if name == "broken" else TEXT)
    (tmp_path / "gone.md").unlink()
    spec = run_spec(str(tmp_path), ("true",), write_back="receipts")
    tasks = [NewTask(n, key=n, data={"item": f"{n}.md", "columns": {}}) for n in names]
    submit.submit(hv, spec, tasks, "b", NOW)
    leases = hv.store.claim(ClaimRequest(HERE, 9, LEASE), NOW)
    tokens = {lease.task.title: parse_token(lease.token) for lease in leases}
    edit = {"edit": {"set": {"status": "done"}, "was": {"status": "todo"}}}
    hv.store.settle(
        [
            AttemptResult(
                token,
                "complete",
                None if name in ("receipt", "nothing") else edit,
                receipts=() if name == "nothing" else (f"did {name}", "twice"),
            )
            for name, token in tokens.items()
        ],
        NOW,
    )
    write_back(hv, [token.task for token in tokens.values()], spec, edits=True)
    found = {name: (tmp_path / f"{name}.md").read_bytes() for name in names[:4]}
    assert b"status: done # later\r\n" in found["edit"] and b"did edit" in found["edit"]
    assert found["receipt"].startswith(TEXT) and b"did receipt" in found["receipt"]
    assert found["nothing"] == TEXT and found["broken"] == b"---\na: [\n---\n"
    assert not (tmp_path / "gone.md").exists()
    said = [e.task for e in hv.store.events(0, 99) if e.kind == "file"]
    assert sorted(said) == sorted(tokens[name].task for name in ("broken", "gone"))
    after = hv.store.receipts_of_tasks([token.task for token in tokens.values()])
    for name, token in tokens.items():
        assert after[token.task] == hv.store.receipts_of_task(token.task)
        assert [each.text for each in after[token.task]][1:] == ["twice"] * (name != "nothing")
    write_back(hv, [token.task for token in tokens.values()], spec, edits=True)
    assert {name: (tmp_path / f"{name}.md").read_bytes() for name in names[:4]} == found
