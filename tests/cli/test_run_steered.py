"""`hv run` in progress: watched, killed, paused, scaled, interrupted and supervised."""

import os
import re
import signal

import pytest

from tests.cli.conftest import until
from tests.cli.running import HOLD, held, is_alive, run


@pytest.fixture
def hv(project):
    return project


class TestSteering:
    def test_a_detached_run_can_be_watched_and_read(self, hv):
        (task,) = held(hv, "b", ["x"])

        status = hv.json("status", "b")
        assert status["supervisor"] and status["stats"]["states"]["in_progress"] == 1
        (attempt,) = status["attempts"]
        assert (attempt["task"], attempt["last_line"]) == (task, "begun x")
        assert re.search(rf"{task}  b +x +begun x", hv.ok("top"))
        shown = hv.ok("status", "--all")
        assert re.search(r"\n1 +0 +0 +b\n", shown) and "begun x" in shown
        following = hv.start("logs", task, "--follow")
        assert following.stdout.readline() == "begun x\n"
        (hv.folder / "open").touch()
        assert following.communicate(timeout=120) == ("over x\n", "")

        watched = hv.ok("status", "b", "--watch")
        assert watched.startswith("batch b: 1 task\n1 done\n")
        assert "1 done" in hv.ok("summary", "b") and task in hv.ok("summary", "b")
        assert hv.ok("logs", task) == "begun x\nover x\n"
        assert hv.json("logs", task)["text"] == "begun x\nover x\n"

    def test_kill_ends_the_processes_and_fails_the_task(self, hv):
        task, other = held(hv, "b", ["x", "y"])
        assert hv.json("kill", task, "--reason", "it loops")[0]["state"] == "stopping"
        until(lambda: hv.state(task) == "failed")
        assert not is_alive(hv, "x") and is_alive(hv, "y")
        assert hv.task(task)["reason"] == "killed by tester: it loops"
        assert hv("kill", task).code == 5
        (hv.folder / "open").touch()
        until(lambda: hv.state(other) == "done")

    def test_kill_with_retry_puts_it_back(self, hv):
        (task,) = held(hv, "b", ["x"])
        before = (hv.folder / "pid-x").read_text()
        hv.ok("kill", task, "--retry")
        until(lambda: (hv.folder / "pid-x").read_text() not in ("", before), "it runs again")
        assert hv.task(task)["failures"] == 0
        (hv.folder / "open").touch()
        until(lambda: hv.state(task) == "done")

    def test_kill_of_a_batch(self, hv):
        tasks = held(hv, "b", ["x", "y"])
        rehearsed = hv.ok("kill", "--batch", "b", "--dry-run")
        assert set(rehearsed.split()[:2]) == set(tasks)
        assert "2 tasks (dry run: nothing was changed)" in rehearsed
        assert is_alive(hv, "x") and is_alive(hv, "y")
        hv.ok("pause", "b")
        stopped = hv.json("kill", "--batch", "b", "--retry")
        assert [task["state"] for task in stopped] == ["stopping"] * 2
        until(lambda: {hv.state(task) for task in tasks} == {"active"})
        assert not is_alive(hv, "x") and not is_alive(hv, "y")

    def test_cancel_ends_the_processes(self, hv):
        (task,) = held(hv, "b", ["x"])
        assert hv.json("cancel", task)[0]["state"] == "stopping"
        until(lambda: hv.state(task) == "cancelled")
        assert not is_alive(hv, "x")

    def test_pause_and_resume_a_batch(self, hv):
        hv.ok("pause", "--all", "--reason", "backup")
        run(hv, "--detach", "--name", "b", "--", "true", items="ab")
        assert "paused: everything (backup); to continue: hv resume --all" in hv.ok("status", "b")
        assert hv.json("pause", "b")["changed"] and not hv.json("pause", "b")["changed"]
        assert hv.json("resume", "--all")["changed"] is True
        states = hv.json("stats", "--batch", "b")["states"]
        assert states["active"] == 2

        assert hv.json("resume", "b")["changed"]
        until(lambda: hv.json("stats", "--batch", "b")["states"]["done"] == 2)
        assert not hv.json("resume", "b")["changed"]

    def test_a_persons_pause_is_waited_for(self, hv):
        (hv.folder / "open").touch()
        hv.ok("pause", "--type", "slow", "--reason", "lunch")
        running = hv.start("run", "--name", "b", "--type", "slow", "--item", "x", "--", "true")
        assert running.stdout.readline() == "batch b: 1 item\n"
        assert "paused: type slow (lunch)" in running.stdout.readline()
        hv.ok("resume", "--type", "slow")
        out, err = running.communicate(timeout=120)
        assert (running.returncode, err) == (0, "") and "1 done" in out

    def test_a_run_that_waits_says_for_what(self, hv):
        running = hv.start("run", "--name", "b", "--in", "2h", "--item", "x", "--", "true")
        assert running.stdout.readline() == "batch b: 1 item\n"
        assert running.stdout.readline().startswith("waiting: 1 task starts at ")
        assert "waiting: 1 task starts at " in hv.ok("status", "b")
        (task,) = hv.tasks("b")
        waiting = hv.json("status", "b")["waiting"]
        assert waiting["reason"].startswith("1 task starts at ")
        assert waiting["next_at"] == hv.task(task["id"])["start_at"]
        hv.ok("update", task["id"], "--in", "0s")
        out, err = running.communicate(timeout=120)
        assert (running.returncode, err) == (0, "") and "1 done" in out
        assert hv.json("status", "b")["waiting"] is None

    def test_scale_sets_how_many_run(self, hv):
        items = ["a", "b", "c"]
        run(
            hv,
            "--detach",
            "--name",
            "b",
            "--workers",
            "1",
            "--",
            "sh",
            "-c",
            HOLD,
            "sh",
            items=items,
        )
        until(lambda: len(list(hv.folder.glob("pid-*"))) == 1)
        hv.ok("scale", "3")
        hv.ok("scale", "3", "b")
        until(lambda: len(list(hv.folder.glob("pid-*"))) == 3)
        (hv.folder / "open").touch()
        until(lambda: hv.json("summary", "b")["succeeded"])
        assert hv.json("scale", "auto", "b") == {"workers": None, "batch": "b"}

    def test_what_a_pause_is_about_must_be_said(self, hv):
        for args in ([], ["b", "--all"], ["--type", "t", "--all"]):
            hv.refused(2, "pause", *args)
            hv.refused(2, "resume", *args)
        hv.refused(2, "scale", "many")
        hv.refused(2, "kill")
        hv.refused(4, "summary", "nothing")


class TestSignals:
    def start(self, hv, items, **more):
        (hv.folder / "items").write_text("".join(f"{item}\n" for item in items))
        return hv.start(
            "run",
            "--name",
            "b",
            "--workers",
            "2",
            "--items",
            "items",
            "--",
            "sh",
            "-c",
            HOLD,
            "sh",
            **more,
        )

    def test_an_interrupt_drains(self, hv):
        process = self.start(hv, "abcd")
        until(lambda: len(list(hv.folder.glob("pid-*"))) == 2)
        process.send_signal(signal.SIGINT)
        until(lambda: hv.json("status", "b")["pauses"])
        (hv.folder / "open").touch()
        out, err = process.communicate(timeout=120)

        assert (process.returncode, err) == (130, "")
        assert "2 done · 2 not finished" in out and "\n  stopped: interrupted\n" in out
        assert "run the same command again  to run 2 unfinished tasks" in out
        assert [task["state"] for task in hv.tasks("b")] == ["done", "done", "active", "active"]

    def test_a_second_interrupt_stops_the_trees_and_the_next_run_resumes(self, hv):
        process = self.start(hv, "abcd")
        until(lambda: len(list(hv.folder.glob("pid-*"))) == 2)
        process.send_signal(signal.SIGINT)
        until(lambda: hv.json("status", "b")["pauses"])
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)

        assert (process.returncode, err) == (130, "")
        assert {task["state"] for task in hv.tasks("b")} == {"active"}
        assert not is_alive(hv, "a") and not is_alive(hv, "b")
        again = self.start(hv, "abcd")
        assert again.stdout.readline() == "batch b: 4 items (4 still open)\n"
        (hv.folder / "open").touch()
        assert "4 done" in again.communicate(timeout=120)[0]

    def test_a_reader_that_left_does_not_stop_the_work(self, hv):
        process = self.start(hv, "ab")
        assert process.stdout.readline() == "batch b: 2 items\n"
        process.stdout.close()
        (hv.folder / "open").touch()
        assert process.wait(120) == 0
        assert hv.json("summary", "b")["succeeded"] is True
        assert process.stderr.read() == ""

    def test_nobody_listens_from_the_beginning(self, hv):
        reading, writing = os.pipe()
        os.close(reading)
        (hv.folder / "open").touch()
        process = self.start(hv, "ab", stdout=writing)
        os.close(writing)
        assert (process.wait(120), process.stderr.read()) == (0, "")
        assert hv.json("summary", "b")["succeeded"] is True

    def test_an_interrupt_ends_a_run_that_a_person_has_paused(self, hv):
        process = self.start(hv, "abcd")
        until(lambda: len(list(hv.folder.glob("pid-*"))) == 2)
        hv.ok("pause", "b", "--reason", "lunch")
        (hv.folder / "open").touch()
        until(lambda: not hv.json("status", "b")["attempts"])
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=120)
        assert process.returncode == 130 and "lunch" in out

    def test_a_supervisor_that_dies_is_replaced(self, hv):
        process = self.start(hv, "abcd")
        until(lambda: len(list(hv.folder.glob("pid-*"))) == 2)
        first = hv.supervisor()
        os.kill(first, signal.SIGKILL)
        until(lambda: hv.supervisor() not in (None, first), "another one")
        (hv.folder / "open").touch()
        out, _ = process.communicate(timeout=120)
        assert process.returncode == 0 and "4 done" in out


class TestSupervise:
    def test_in_the_foreground_it_tells_what_it_decides(self, hv):
        process = hv.start("supervise")
        try:
            assert f"supervisor running as process {process.pid};" in process.stdout.readline()
            assert hv("supervise").code == 5
            detached = hv.ok("supervise", "--detach")
            assert detached == f"supervisor running as process {process.pid}\n"
            run(hv, "--detach", "--name", "b", "--", "true", items="ab")
            hv.ok("pause", "b", "--reason", "lunch")
            assert process.stdout.readline()[10:] == "pause of batch b by tester: lunch\n"
            hv.ok("resume", "b")
            assert any("resume of batch b by tester" in line for line in process.stdout)
            until(lambda: hv.json("summary", "b")["succeeded"])
        finally:
            process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
        assert (process.returncode, err) == (0, "")
        assert "draining" in out

    def test_detached_it_leaves_by_itself(self, hv):
        assert hv.json("supervise", "--detach")["supervisor"] == hv.supervisor()

    def test_only_a_detached_one_can_be_asked_to_stay(self, hv):
        assert hv("supervise", "--stay").code == 2
