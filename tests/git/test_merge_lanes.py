"""Several lanes and batches at a time, and tasks that are cancelled meanwhile: whole runs."""

from __future__ import annotations

import time

import pytest

from hypervisor.core.errors import WrongState
from tests.git.whole_runs import DEADLINE, runs, submit, wait


def until(condition):
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_task_cancelled_while_it_is_verified_does_not_land(tmp_path):
    with runs(tmp_path) as (repo, hv):
        started = tmp_path / "started"
        script = f"touch '{started}'; exec sleep 600"
        submit(hv, repo, "echo changed >> f{}.txt", [0], verify=(script,))
        until(started.exists)
        [task] = hv.list_tasks()
        [lane] = hv.merge_queue()
        assert lane.doing == f"verifying {task.id}"
        assert hv.cancel(task.id).state == "cancelled"
        until(lambda: hv.launcher.acquire_lock_of("merger") is not None)
        assert repo.tip("hv/edits") is None
        assert hv.show(task.id).detail.task.state == "cancelled"


def test_a_slow_lane_does_not_hold_up_another(tmp_path):
    with runs(tmp_path) as (repo, hv):
        go, started = tmp_path / "go", tmp_path / "started"
        slow = f"touch '{started}'; while ! test -e '{go}'; do sleep 0.1; done"
        submit(hv, repo, "echo changed >> f{}.txt", [0], name="slow", verify=(slow,))
        until(started.exists)
        submit(hv, repo, "echo changed >> f{}.txt", [1], name="fast", verify=("true",))
        until(lambda: repo.tip("hv/fast") is not None)
        assert repo.tip("hv/slow") is None
        go.touch()
        assert {task.state for task in wait(hv, 2).values()} == {"done"}


def test_batches_in_one_lane_keep_their_own_verification(tmp_path):
    with runs(tmp_path) as (repo, hv):
        for name, number in (("one", 0), ("two", 1)):
            verify = (f"echo {name} >> '{tmp_path}/verified'; ! grep never f{number}.txt",)
            script = "echo changed >> f{}.txt"
            git = {"target": "hv/both", "verify": verify}
            submit(hv, repo, script, [number], name=name, **git)
        assert {task.state for task in wait(hv, 2).values()} == {"done"}
        assert len({lane.lane for lane in hv.merge_queue()}) == 0
        assert set((tmp_path / "verified").read_text().split()) == {"one", "two"}
        tip = repo.tip("hv/both")
        assert repo.read(tip, "f0.txt") == "line 0\nchanged\n"
        assert repo.read(tip, "f1.txt") == "line 1\nchanged\n"


def test_a_target_that_fails_pauses_its_lane_and_continues_by_itself(tmp_path):
    with runs(tmp_path) as (repo, hv):
        repo.commit({"f7.txt": "broken\n"})
        submit(hv, repo, "echo x >> f{}.txt", [0], merge="local", verify=("! grep broken f7.txt",))
        until(lambda: any(lane.paused for lane in hv.merge_queue()))
        [lane] = hv.merge_queue()
        assert lane.paused.startswith("verification fails on main itself: ! grep broken f7.txt")
        assert "\n" not in lane.paused
        repo.commit({"f7.txt": "repaired\n"})
        assert {task.state for task in wait(hv, 1).values()} == {"done"}
        assert repo.read("main", "f0.txt") == "line 0\nx\n"


def test_what_has_landed_cannot_be_cancelled(tmp_path):
    with runs(tmp_path) as (repo, hv):
        submit(hv, repo, "echo changed >> f{}.txt", [0], verify=("true",))
        [task] = wait(hv, 1).values()
        with pytest.raises(WrongState):
            hv.cancel(task.id)
