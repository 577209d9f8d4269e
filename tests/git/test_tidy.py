"""Tidying up: clones of finished tasks go to the trash and are deleted later, killed attempts are
saved, and what stays has a reason."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from pathlib import Path

from hypervisor.core.errors import NotFound
from hypervisor.git import tidy
from hypervisor.git.collect import task_ref
from hypervisor.git.hub import Hub
from hypervisor.git.workspace import open_existing
from tests.git.whole_runs import runs, submit, wait

DAY = 86_400_000


def until(condition, seconds=90):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def hub_of(hv):
    [path] = Path(hv.places.data, "git").glob("*.git")
    return Hub(str(path))


def test_clones_go_to_the_trash_and_are_deleted_later(tmp_path):
    with runs(tmp_path) as (repo, hv):
        submit(hv, repo, "echo changed >> f{}.txt", [1, 2], merge="")
        tasks = wait(hv, 2)
        work, trash = (Path(hv.places.data, "git", name) for name in ("work", "trash"))
        now = hv.now() + tidy.KEPT_MS + 1
        [early, _] = tidy.tidy(hv).workspaces
        assert early.why_kept == ("its task has just ended",)
        would = tidy.tidy(hv, dry_run=True, now=now)
        assert [place.why_kept for place in would.workspaces] == [(), ()] and not would.kept
        assert len([path for path in work.iterdir() if path.name != ".state"]) == 2

        assert len(tidy.tidy(hv, now=now).workspaces) == 2
        assert [path.name for path in work.iterdir()] == [".state"]
        task = tasks["1"]
        assert hub_of(hv).git.commit_of(task_ref(task.id, 1))  # so that it can be merged later
        assert [file.path for file in hv.diff(task.id).files] == ["f1.txt"]
        kept = tidy.tidy(hv, now=now + DAY).trash
        assert [place.why_kept for place in kept] == [("the retention time is not over",)] * 2
        assert tidy.tidy(hv, now=now + 8 * DAY).deleted_bytes > 0
        assert not list(trash.iterdir())
        assert [file.path for file in hv.diff(task.id).files] == ["f1.txt"]


def test_snapshots_are_dropped_once_the_work_is_merged(tmp_path):
    """By whatever way: here as a squash, which has none of the task's commits."""
    with runs(tmp_path) as (repo, hv):
        submit(hv, repo, "echo changed >> f{}.txt", [1], merge="")
        [task] = wait(hv, 1).values()
        now = hv.now() + 8 * DAY
        tidy.tidy(hv, now=now)
        assert tidy.tidy(hv, now=now + 8 * DAY).refs == 0  # the work is nowhere else
        repo.commit({"f1.txt": "line 1\nchanged\n"}, "squashed")
        submit(hv, repo, "true", [2], name="later", merge="")  # brings the hub up to date
        wait(hv, 2)
        assert tidy.tidy(hv, now=now + 8 * DAY).refs > 0
        assert not hub_of(hv).refs(f"refs/hv/snapshots/{task.id}", f"refs/hv/tasks/{task.id}")


def test_what_a_killed_attempt_left_is_saved_before_anything_else_happens(tmp_path):
    with runs(tmp_path) as (repo, hv):
        submit(hv, repo, "echo half > half.txt; sleep 600", [1], merge="")
        left = Path(hv.places.data, "git", "work")
        until(lambda: list(left.glob("*/half.txt")))
        [attempt] = hv.status("edits").attempts
        hv.pause(batch="edits")
        os.kill(attempt.pid, signal.SIGKILL)
        saved = until(lambda: _snapshots(hv, attempt.task))
        assert saved[-1].attempt == 1
        assert "+half" in hv.diff(attempt.task, attempt=1).text
        assert list(left.glob("*/half.txt"))


def _snapshots(hv, task):
    hv.supervise()
    try:
        return hv.snapshots(task)
    except NotFound:
        return []


def test_a_clone_is_not_removed_while_its_task_is_retried(tmp_path):
    """The task changes its state after the clone was chosen, before it is locked."""
    with runs(tmp_path) as (repo, hv):
        submit(hv, repo, "test -f /nonexistent", [1], merge="")
        [task] = wait(hv, 1).values()
        hv.pause(batch="edits")
        folder = Path(hv.places.data, "git", "work", task.id)
        workspace = open_existing(str(folder))
        assert workspace is not None
        hv.retry(task.id)
        [reason] = tidy._to_trash(hv, workspace, hv.now() + DAY)
        assert reason == "its task is ready" and folder.exists()


def test_checkouts_for_verification_are_removed_when_no_lane_uses_them(tmp_path):
    with runs(tmp_path) as (repo, hv):
        submit(hv, repo, "echo changed >> f{}.txt", [1], verify=("true",))
        wait(hv, 1)
        folder = Path(hv.places.data, "git", "benches")
        locks = sorted(folder.glob("*.lock"))
        lock, count = locks[0], len(locks)
        bench = lock.with_suffix("")
        assert (bench / "f1.txt").exists()
        assert tidy.tidy(hv, now=hv.now() + 6 * DAY).benches == 0
        now = hv.now() + 8 * DAY
        handle = os.open(lock, os.O_RDWR)
        fcntl.flock(handle, fcntl.LOCK_EX)  # a verification is running there
        assert tidy.tidy(hv, dry_run=True, now=now).benches == count - 1
        os.close(handle)
        assert tidy.tidy(hv, dry_run=True, now=now).benches == count and bench.exists()
        done = tidy.tidy(hv, now=now)
        assert done.benches == count and done.deleted_bytes > 0
        assert not list(folder.iterdir())
        submit(hv, repo, "echo changed >> f{}.txt", [2], verify=("true",))
        assert wait(hv, 2)["2"].state == "done"  # in a new one
        assert (bench / "f2.txt").exists()


def test_clones_of_a_deleted_batch_are_removed(tmp_path):
    with runs(tmp_path) as (repo, hv):
        submit(hv, repo, "echo changed >> f{}.txt", [1], merge="")
        wait(hv, 1)
        hv.delete_batch("edits")
        [place] = tidy.tidy(hv).workspaces
        assert not place.why_kept and not os.path.exists(place.path)
