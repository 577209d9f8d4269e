"""Archiving and deleting batches, on both databases; a deletion is killed at every step."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

import hypervisor
from hypervisor.batches import delete
from hypervisor.batches.latest import latest_batch, note_latest_run
from hypervisor.core.errors import NotFound, WrongState
from hypervisor.notifications.matching import collect
from hypervisor.queue.task import NewTask
from hypervisor.store import schema
from tests.support.python_runs import opened

EMPTY = {"tasks", "details", "attempts", "dependencies", "task_keys", "item_files", "batches"}


@pytest.fixture(params=["sqlite", "postgres"])
def where(request, tmp_path, monkeypatch):
    (tmp_path / "run").mkdir(mode=0o700)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.chdir(tmp_path)
    if request.param == "sqlite":
        return str(tmp_path / ".hypervisor")
    return request.getfixturevalue("postgres_url")


@pytest.fixture
def hv(where):
    with opened(where) as hv:
        yield hv


def finished(hv, name, *tasks):
    """A batch whose tasks are all done, each with a receipt and an output."""
    added = hv.add([NewTask(task, key=task) for task in tasks or ("one", "two")], name)
    while leases := hv.claim("ann", 10, batch=name):
        for lease in leases:
            hv.receipt(lease.token, ["did it"])
            hv.complete(lease.token, {"ok": True})
            output = hv.outputs.prepare(lease.task.id, lease.task.attempts)
            Path(output).write_text("printed\n")
    return added.ids


def rows(hv, *tables):
    return {
        table: hv.store.read(lambda s, t=table: s.rows(f"SELECT count(*) FROM {t}")[0][0])
        for table in tables
    }


def names(batches):
    return [batch.name for batch in batches]


def kinds(hv):
    return [event.kind for event in hv.events() if not event.task]


# Archiving


def test_an_archived_batch_is_out_of_sight_and_complete(hv):
    finished(hv, "old")
    hv.add("still here")
    assert hv.archive_batch("old") == ("old",)
    assert hv.archive_batch("old") == ()
    assert hv.batches() == () and names(hv.batches(archived=True)) == ["old"]
    assert names(hv.batches(archived=None)) == ["old"]
    assert [task.title for task in hv.list_tasks()] == ["still here"]
    assert len(hv.list_tasks(archived=True)) == 3 and len(hv.list_tasks(batch="old")) == 2
    assert hv.stats().total == 1 and hv.stats("old").total == 2
    assert hv.status().stats.total == 1
    assert hv.unarchive_batch("old") == ("old",) and hv.unarchive_batch("old") == ()
    assert names(hv.batches()) == ["old"] and hv.stats().total == 3
    assert kinds(hv)[-2:] == ["archive", "unarchive"]


def test_the_latest_batch_is_one_that_is_not_archived(hv):
    finished(hv, "first")
    finished(hv, "second")
    note_latest_run(hv, hv.batches()[0].id)
    hv.archive_batch("second")
    latest = latest_batch(hv)
    assert latest is not None and latest.name == "first"
    hv.archive_batch("first")
    assert latest_batch(hv) is None


def test_a_batch_with_unfinished_tasks_is_neither_archived_nor_deleted(hv):
    finished(hv, "b")
    hv.add("open", "b")
    for verb, act in (("archive", hv.archive_batch), ("delete", hv.delete_batch)):
        with pytest.raises(
            WrongState, match=rf"cannot {verb} b: 1 task not .*1 ready.*hv cancel b"
        ):
            act("b")
    assert hv.stats("b").total == 3 and names(hv.batches()) == ["b"]


@pytest.mark.parametrize("way", ["add", "retry"])
def test_work_brings_an_archived_batch_back(hv, way):
    task = finished(hv, "b")[0]
    hv.archive_batch("b")
    hv.add("more", "b") if way == "add" else hv.retry(task)
    assert names(hv.batches()) == ["b"] and "unarchive" in kinds(hv)


# Deleting


def test_a_deleted_batch_leaves_its_events_and_receipts_and_nothing_else(hv):
    batch = finished(hv, "b") and hv.batches()[0]
    kept = finished(hv, "other")
    before = len(hv.events())
    folder = Path(hv.batch_files.write("b", "x.md", "text")).parent
    would = hv.delete_batch("b", dry_run=True)
    assert len(hv.events()) == before and hv.stats("b").total == 2
    done = hv.delete_batch("b")
    assert done == would
    assert done == delete.Deleted(("b",), 2, 2, 2, 16, 2)
    assert names(hv.batches()) == ["other"] and not folder.exists()
    assert [task.id for task in hv.list_tasks()] == list(reversed(kept))
    assert {output.task for output in hv.outputs.all()} == set(kept)
    assert [event.kind for event in hv.events()[before:]] == ["receipt", "delete"]
    assert hv.events()[-1].data == {"name": "b", "tasks": 2, "attempts": 2}
    # the evidence is complete, and says that the batch was deleted
    lines = [receipt.text for receipt in hv.receipts(batch.id)]
    assert lines == ["did it", "did it", "deleted batch b: 2 tasks, 2 attempts"]
    assert [report.problem for report in hv.verify()] == [None, None]
    assert [report.receipts for report in hv.verify(batch.id)] == [3]
    with pytest.raises(NotFound):
        hv.delete_batch("b")


def test_nothing_is_left_of_the_only_batch(hv):
    ids = finished(hv, "b", "one", "two", "three")
    hv.add(NewTask("later", after=(ids[0],), exclusive=("key",)), "b")
    for lease in hv.claim("ann", batch="b"):
        hv.complete(lease.token)
    hv.pause("b")
    hv.scale(3, "b")
    hv.delete_batch("b")
    left = {table for table, count in rows(hv, *schema.tables()).items() if count}
    evidence = {"events", "receipts", "receipt_chains", "workers"}
    assert left <= evidence | {"settings", "clocks", "lanes", "counted_events"}
    assert rows(hv, "lanes")["lanes"] == 1, "the newest number is never given again"


def test_its_name_can_be_used_again_by_a_process_that_knew_the_old_one(hv):
    finished(hv, "b")
    assert hv.claim("ann", batch="b") == ()
    hv.delete_batch("b")
    with pytest.raises(NotFound):
        hv.claim("ann", batch="b")
    assert len(finished(hv, "b", "one")) == 1, "keys of the old one are gone"
    assert hv.stats("b").total == 1


def test_a_task_elsewhere_that_waits_for_it_is_in_the_way(hv):
    hv.add(NewTask("no good", key="k"), "b")
    [lease] = hv.claim("ann", batch="b")
    hv.fail(lease.token, "bad", final=True)
    waiting = hv.add(NewTask("later", after=(lease.task.id,))).id
    with pytest.raises(WrongState, match=f"task {waiting} waits"):
        hv.delete_batch("b")
    hv.cancel(waiting)
    assert hv.delete_batch("b").tasks == 1


def test_a_pipeline_goes_as_a_whole(hv):
    from tests.batches.pipelines import ONE, THREE, TWO

    item = NewTask("a", key="a", data={"item": "a"})
    hv.run_pattern(ONE, [item], "p", (TWO,), reduce=THREE)
    for task in hv.list_tasks():
        hv.cancel(task.id)
    assert len(names(hv.batches())) == 3
    assert len(hv.archive_batch(hv.batches()[0].name)) == 3 and hv.batches() == ()
    assert len(hv.delete_batch("p").batches) == 3
    assert not any(rows(hv, *EMPTY, "pipelines", "pipeline_batches").values())


def test_each_slice_is_short(hv):
    """No transaction of a deletion takes long, however many tasks there are."""
    tasks = [NewTask(str(n), key=str(n), exclusive=(str(n),)) for n in range(1_500)]
    for id in hv.add(tasks, "b").ids:
        hv.cancel(id)
    spans, write = [], hv.store.write

    def timed(*args, **more):
        began = time.thread_time()  # other processes on this machine do not count
        try:
            return write(*args, **more)
        finally:
            spans.append(time.thread_time() - began)

    hv.store.write = timed
    hv.delete_batch("b")
    assert len(spans) > 8 and max(spans) < 0.1, max(spans)


def test_a_deletion_killed_at_any_step_can_be_repeated(hv, where, monkeypatch):
    monkeypatch.setattr(delete, "SLICE", 2)
    for step in range(1, 12):
        finished(hv, "b", "1", "2", "3", "4", "5")
        hv.batch_files.write("b", "x.md", "text")
        child = os.fork()
        if child == 0:
            _die_after(where, step)
        survived = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        if not survived:
            for batch in hv.batches():  # none if it died after the last step
                assert batch.deleting
                with pytest.raises(WrongState, match="being deleted"):
                    hv.add("more", "b")
                hv.delete_batch("b")
        assert hv.batches() == () and not any(rows(hv, *EMPTY).values())
        assert list(hv.outputs.all()) == []
        assert all(report.problem is None for report in hv.verify())
        if survived:
            assert step == 11, "two for each of three slices, and the rest"
            return
    raise AssertionError("it never got to its end")


def _die_after(where, steps):
    """Delete the batch, and die after this many changes of the store or the outputs."""
    try:
        hv = hypervisor.open(where, relaxed=True)
        left = [steps]

        def counted(act):
            def wrapped(*args, **more):
                answer = act(*args, **more)
                left[0] -= 1
                if not left[0]:
                    os._exit(1)
                return answer

            return wrapped

        hv.store.write = counted(hv.store.write)  # type: ignore[method-assign]
        hv.outputs.remove = counted(hv.outputs.remove)  # type: ignore[method-assign]
        hv.delete_batch("b")
        os._exit(7)
    finally:
        os._exit(2)


def test_rules_and_notices_survive_the_deletion(hv):
    """The notifier may reach the events of a batch after its deletion."""
    finished(hv, "b")
    hv.add_rule("all", ["done", "finished"], ["true"])
    hv.add_rule("ofb", ["done"], ["true"], batch="b")
    hv.retry(hv.list_tasks(batch="b")[0].id)
    for lease in hv.claim("ann", batch="b"):
        hv.complete(lease.token)
    hv.delete_batch("b")
    collect(hv)
    assert [status.waiting for status in hv.rules()] == [1, 1]
