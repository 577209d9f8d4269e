"""Finished batches and single tasks are deleted after some time, on both databases."""

from __future__ import annotations

from pathlib import Path

import pytest

from hypervisor.batches.retention import Cleared, delete_finished
from hypervisor.queue.sql import counts
from hypervisor.queue.task import NewTask
from tests.support.python_runs import opened

DAY = 86_400_000
NOTHING = Cleared()
SET_SPEC = "UPDATE batches SET spec = ? WHERE name = ?"
LAND = """
INSERT INTO landings (task, attempt, hash, target, verified, at) VALUES (?, 1, 'abc', 'main', 1, 1)
"""


@pytest.fixture(params=["sqlite", "postgres"])
def hv(request, tmp_path, monkeypatch):
    (tmp_path / "run").mkdir(mode=0o700)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.chdir(tmp_path)
    is_sqlite = request.param == "sqlite"
    where = str(tmp_path / ".hypervisor") if is_sqlite else request.getfixturevalue("postgres_url")
    with opened(where) as hv:
        yield hv


@pytest.fixture
def now(hv):
    return hv.now()


def finished(hv, at, *titles, batch=None):
    """Tasks that were added and done at a time, with outputs."""
    ids = hv.add([NewTask(title) for title in titles], batch, now=at).ids
    for lease in hv.claim("ann", len(ids), batch=batch, now=at):
        Path(hv.outputs.prepare(lease.task.id, 1)).write_text("printed")
        hv.complete(lease.token, now=at)
    return ids


def outputs(hv):
    return {output.task for output in hv.outputs.all()}


def test_only_what_ended_long_ago_is_deleted(hv, now):
    finished(hv, now - 9 * DAY, "a", "b", batch="old")
    recent = finished(hv, now - 3 * DAY, "c", batch="recent")
    finished(hv, now - 8 * DAY, "single")
    late = finished(hv, now - 2 * DAY, "late single")
    would = delete_finished(hv, now - 7 * DAY, dry_run=True)
    assert would == Cleared(("old",), 3) and hv.stats().total == 5
    assert delete_finished(hv, now - 7 * DAY) == would
    assert delete_finished(hv, now - 7 * DAY) == NOTHING
    assert {task.title for task in hv.list_tasks()} == {"c", "late single"}
    assert outputs(hv) == {*recent, *late} and [b.name for b in hv.batches()] == ["recent"]
    assert hv.stats().total == 2
    assert not hv.store.read(counts.corrections)


def test_unfinished_work_keeps_its_batch(hv, now):
    finished(hv, now - 9 * DAY, "a", batch="open")
    hv.add("still to do", "open", now=now - 8 * DAY)
    hv.add("single", now=now - 8 * DAY)
    assert delete_finished(hv, now - 7 * DAY) == NOTHING
    assert hv.stats().total == 3


def test_a_task_that_others_wait_for_is_kept(hv, now):
    [failed] = hv.add("first", now=now - 9 * DAY).ids
    hv.add([NewTask("second", after=(failed,))], now=now - 9 * DAY)
    hv.cancel(failed, now=now - 9 * DAY)
    assert delete_finished(hv, now - 7 * DAY) == NOTHING
    assert {task.title for task in hv.list_tasks()} == {"first", "second"}


def test_work_in_a_clone_is_kept_until_it_is_merged(hv, now):
    first, second = finished(hv, now - 9 * DAY, "a", "b", batch="code")
    spec = '{"cwd": "/", "command": ["true"], "workspace": "clone"}'
    hv.store.write(lambda s: s.run(SET_SPEC, (spec, "code")))
    hv.store.write(lambda s: s.run(LAND, (first,)))
    assert delete_finished(hv, now - 7 * DAY) == NOTHING
    hv.store.write(lambda s: s.run(LAND, (second,)))
    assert delete_finished(hv, now - 7 * DAY) == Cleared(("code",), 2)


def test_a_deletion_that_was_interrupted_is_completed(hv, now):
    finished(hv, now - 9 * DAY, "a", batch="b")
    hv.store.write(lambda s: s.run("UPDATE batches SET deleting = 1"))
    assert delete_finished(hv, now - 7 * DAY) == Cleared(("b",), 1)
