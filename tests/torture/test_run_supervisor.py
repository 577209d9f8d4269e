"""The supervisor with real clients, workers and kills: one at a time, and work survives without
it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hypervisor.core.places import Places
from hypervisor.resources.process_table import snapshot
from hypervisor.runs.processes.launcher import LocalLauncher
from tests.torture.fleet import DEADLINE, kill, wait_for

INTERRUPTED = 130
# Reports when it begins and when it ends; it takes as long as the second word says, or until
# the file that it names exists.
NOTE = """
echo "begin $1" >> noted
case $2 in go) until [ -e go ]; do sleep 0.05; done ;; *) sleep "$2" ;; esac
echo "end $1" >> noted
"""

# Looks for a supervisor again and again.
LOOK = """
import sys, time
from hypervisor.runs.processes.launcher import LocalLauncher
from hypervisor.core.places import Places
launcher = LocalLauncher("store.db", Places(*sys.argv[1:]))
end = time.monotonic() + 1
seen = set()
while time.monotonic() < end:
    seen.add(launcher.supervisor())
print(seen)
"""


@pytest.fixture
def note(project):
    """A command that takes this many seconds, or until there is a file `go`, and notes its
    item before and after."""
    (project.folder / "note.sh").write_text(NOTE)
    return lambda seconds: ("sh", "note.sh", "{}", str(seconds))


class TestOneOfThem:
    def test_although_five_clients_start_at_once(self, project, note):
        batches = [[f"{n}{i}" for i in range(4)] for n in range(5)]
        clients = [
            project.start("run", "--name", f"batch{n}", "--", *note(0.3), items=items)
            for n, items in enumerate(batches)
        ]
        parents = set()
        until = time.monotonic() + DEADLINE
        while any(client.poll() is None for client in clients):
            assert time.monotonic() < until, project.story()
            all = snapshot()
            found = {all[pid].parent for pid in project.workers() if pid in all}
            # The process between fork server and worker is its parent for a moment.
            parents |= found & {
                p.pid for p in project.processes() if project.role(p) == "supervisor"
            }
        assert [project.ended(client).code for client in clients] == [0] * 5
        assert len(parents) == 1, "workers of more than one supervisor"
        assert _noted(project, "begin") == [item for items in batches for item in items]
        project.wait_until_left()

    def test_those_who_look_for_it_are_not_taken_for_it(self, tmp_path):
        """A process that checks takes the lock for a moment, and the file still names the last
        supervisor."""
        launcher, places = _launcher(tmp_path)
        _hold(launcher)
        seen = [looker.communicate(timeout=DEADLINE)[0] for looker in _lookers(places)]
        assert seen == ["{None}\n"] * 3

    def test_those_who_look_for_it_do_not_keep_it_from_starting(self, tmp_path):
        launcher, places = _launcher(tmp_path)
        lookers = _lookers(places)
        held = [_hold(launcher)]
        while any(looker.poll() is None for looker in lookers):
            held.append(_hold(launcher))
        assert all(held) and len(held) > 10
        assert [looker.communicate()[0] != "" for looker in lookers] == [True] * 3


class TestKilled:
    def test_workers_continue_and_the_next_one_adopts_them(self, project, note):
        client = project.start("run", "--workers", "3", "--", *note("go"), items="abc")
        wait_for(lambda: len(_noted(project, "begin")) == 3, "the start", story=project.story)
        workers, (first,) = project.workers(), project.supervisors()
        kill(snapshot()[first])
        second = _next_supervisor(project, first)
        assert project.workers() == workers
        assert _is_settled(project, second)
        assert project.workers() == workers, "somebody was started although all were there"
        (project.folder / "go").touch()
        ended = project.ended(client)
        assert ended.code == 0, (ended, project.story())
        assert (_noted(project, "begin"), _noted(project, "end")) == (["a", "b", "c"],) * 2
        assert _outcomes(project) == ["done"] * 3, project.story()

    def test_an_adopted_worker_that_dies_crashes_only_on_what_it_ran(self, project, note):
        """What it had claimed but not begun goes back unharmed, no matter which process finds it
        dead."""
        client = project.start(
            "run", "--workers", "2", "--claim", "8", "--", *note("go"), items=range(60)
        )
        wait_for(lambda: len(_noted(project, "begin")) == 2, "the start", story=project.story)
        (first,) = project.supervisors()
        kill(snapshot()[first])
        second = _next_supervisor(project, first)
        assert _is_settled(project, second)
        for worker in project.workers():
            kill(snapshot()[worker])
        (project.folder / "go").touch()
        ended = project.ended(client)
        assert ended.code == 0, (ended, project.story())
        crashes = _count(
            project, "SELECT worker, count(*) FROM attempts WHERE outcome = 'crashed' GROUP BY 1"
        )
        assert crashes and set(crashes.values()) == {1}

    def test_a_draining_worker_is_not_stopped_by_the_next_one(self, project, note):
        """It cannot know that the worker has already been asked, so it asks again."""
        client = project.start(
            "run", "--workers", "2", "--name", "b", "--", *note("go"), items="ab"
        )
        wait_for(lambda: len(_noted(project, "begin")) == 2, "the start", story=project.story)
        with project.open() as hv:
            hv.scale(1, "b")
            (first,) = project.supervisors()
            wait_for(lambda: (hv.launcher.read_status() or {}).get("target") == 1, "the new target")
        kill(snapshot()[first])
        assert _is_settled(project, _next_supervisor(project, first))
        (project.folder / "go").touch()
        ended = project.ended(client)
        assert ended.code == 0, (ended, project.story())
        assert _outcomes(project) == ["done"] * 2


class TestInterrupted:
    def test_once_lets_finish_what_runs(self, project, note):
        client = project.start("run", "--workers", "2", "--", *note("go"), items="abcdef")
        wait_for(lambda: len(_noted(project, "begin")) == 2, "the start", story=project.story)
        client.send_signal(signal.SIGINT)
        wait_for(lambda: project.events("pause"), "the drain", story=project.story)
        (project.folder / "go").touch()
        assert project.ended(client).code == INTERRUPTED
        assert _noted(project, "begin") == _noted(project, "end") == ["a", "b"]
        assert project.states() == {"active": 4, "done": 2}
        again = project.run("--workers", "2", "--", *note("go"), items="abcdef")
        assert again.code == 0, (again, project.story())
        assert "already done, skipped" in again.out  # more than 2 if drained ones continue
        assert _noted(project, "begin") == list("abcdef")
        assert _outcomes(project) == ["done"] * 6

    @pytest.mark.parametrize("at_once", [True, False])
    def test_twice_stops_the_trees_and_puts_the_tasks_back(self, project, at_once):
        """A second signal may arrive before the first one has had any effect."""
        (project.folder / "slow.sh").write_text(
            'echo "begin $1" >> noted; [ -e quick ] || (setsid sleep 300 & sleep 300)'
        )
        command = ("run", "--workers", "2", "--", "sh", "slow.sh", "{}")
        client = project.start(*command, items="abcd")
        wait_for(lambda: len(_noted(project, "begin")) == 2, "the start", story=project.story)
        client.send_signal(signal.SIGINT)
        if at_once:
            wait_for(lambda: not _is_pending(client.pid, signal.SIGINT), "the first to arrive")
        else:
            wait_for(lambda: project.events("pause"), "the first to be heard")
        client.send_signal(signal.SIGINT)
        assert project.ended(client).code == INTERRUPTED
        assert [p for p in project.processes() if project.role(p) == "child"] == []
        assert project.states() == {"active": 4}
        assert project.query("SELECT DISTINCT failures, crashes FROM tasks") == [[(0, 0)]]
        assert set(_outcomes(project)) == {"released"}
        (project.folder / "quick").touch()
        again = project.ended(project.start(*command, items="abcd"))
        assert again.code == 0, (again, project.story())
        assert project.states() == {"done": 4}
        project.wait_until_left()


class TestSteering:
    def test_pause_resume_and_scale_are_followed(self, project, note):
        project.run(
            "--detach", "--workers", "4", "--name", "b", "--", *note(0.3), items=range(3000)
        )
        live = lambda: len(project.workers())  # noqa: E731
        wait_for(lambda: live() == 4, "four workers", story=project.story)
        with project.open() as hv:
            hv.scale(1, "b")
            wait_for(lambda: live() == 1, "one worker", story=project.story)
            hv.scale(3, "b")
            wait_for(lambda: live() == 3, "three workers", story=project.story)
            hv.scale(2)
            wait_for(lambda: live() == 2, "two on the host", story=project.story)
            hv.scale(None)
            hv.scale(0, "b")
            wait_for(lambda: live() == 0, "none", story=project.story)
            hv.scale(None, "b")
            wait_for(lambda: live() == 4, "as planned", story=project.story)
            for pausing in ({"batch": "b"}, {"type": "run"}, {}):
                hv.pause(**pausing)
                wait_for(lambda: live() == 0, "the pause", story=project.story)
                begun, attempts = _noted(project, "begin"), len(_outcomes(project))
                assert _stays(lambda: live() == 0, 1), "a worker was started during a pause"
                assert (_noted(project, "begin"), len(_outcomes(project))) == (begun, attempts)
                hv.resume(**pausing)
                wait_for(lambda: live() > 0, "the resumption", story=project.story)
        assert set(_outcomes(project)) <= {"done", "released", None}

    def test_fail_fast_starts_nothing_more(self, project):
        """The other worker may finish what it has begun or is about to begin."""
        (project.folder / "fail.sh").write_text(
            'echo "begin $1" >> noted; [ "$1" != 3 ] || [ -e mended ] || exit 1; sleep 0.2'
        )
        command = ("run", "--fail-fast", "--workers", "2", "--", "sh", "fail.sh", "{}")
        ended = project.ended(project.start(*command, items=range(1, 41)))
        assert ended.code == 9, (ended, project.story())
        begun = len(_noted(project, "begin"))
        assert begun <= 20, "it went on after the failure"
        assert project.states() == {"failed": 1, "done": begun - 1, "active": 40 - begun}
        (pause,) = project.events("pause")
        assert "fail-fast" in pause.data["reason"] and "exit code 1" in pause.data["reason"]
        (project.folder / "mended").touch()
        again = project.ended(project.start(*command, items=range(1, 41)))
        assert again.code == 0, (again, project.story())
        assert project.states() == {"done": 40}

    def test_detached_runs_outlive_their_client(self, project, note):
        left = project.run(
            "--detach", "--workers", "2", "--name", "one", "--", *note("go"), items="ab"
        )
        assert left.code == 0 and _outcomes(project) != ["done"] * 2
        (project.folder / "go").touch()
        killed = project.start("run", "--workers", "2", "--name", "two", "--", *note(1), items="cd")
        wait_for(lambda: "c" in _noted(project, "begin"), "the start", story=project.story)
        os.killpg(killed.pid, signal.SIGKILL)
        wait_for(lambda: project.states() == {"done": 4}, "the end", story=project.story)
        assert _noted(project, "end") == list("abcd")
        project.wait_until_left()

    def test_a_batch_whose_workers_cannot_start_is_paused(self, project):
        """Its folder is gone: this is reported, instead of trying forever."""
        (project.folder / "folder").mkdir()
        with project.open() as hv:
            hv.pause(reason="not yet")
            client = project.start(
                "run", "--cwd", "folder", "--name", "b", "--", "true", items="abc"
            )
            wait_for(lambda: project.states() == {"active": 3}, "the submission")
            shutil.rmtree(project.folder / "folder")
            hv.resume()
            ended = project.ended(client)
            assert ended.code == 9, (ended, project.story())
            (pause,) = hv.status("b").pauses
        assert (pause.actor, pause.scope) == ("supervisor", "batch")
        assert "could not start" in pause.reason and "supervisor.log" in pause.reason
        log = (project.folder / ".hypervisor" / "supervisor.log").read_text()
        assert 3 <= log.count("FileNotFoundError") <= 6
        assert "could not start" in ended.out + ended.err
        project.wait_until_left()


class TestMemory:
    def test_it_stays_flat(self, tmp_path, project, long):
        """Supervisor and workers together use as much memory with many items as with few."""
        many = 100_000 if long else 10_000
        few = _peak_of_fleet(project, "few", 1_000)
        lot = _peak_of_fleet(project, "many", many)
        print(f"{few / 2**20:.1f} MB with 1,000 items, {lot / 2**20:.1f} MB with {many:,}")
        assert lot < 1.2 * few


def _launcher(folder):
    places = Places(str(folder), str(folder / "runtime"))
    return LocalLauncher(str(folder / "store.db"), places), places


def _hold(launcher):
    """Be the supervisor for a moment. Returns whether that was possible."""
    handle = launcher.acquire_lock()
    if handle is not None:
        assert launcher.supervisor() == os.getpid()
        os.close(handle)
    return handle is not None


def _lookers(places):
    command = [sys.executable, "-c", LOOK, *places]
    return [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]


def _peak_of_fleet(project, name, items):
    """The most memory that the supervisor was seen to use, and twice the most of a worker: how
    many of these live at a moment says nothing about how they grow."""
    client = project.start(
        "run", "--quiet", "--workers", "2", "--name", name, "--", "true", items=range(items)
    )
    peak, until = {"supervisor": 0, "worker": 0}, time.monotonic() + 900
    while client.poll() is None:
        assert time.monotonic() < until, project.story()
        for process in project.processes():
            role = project.role(process)
            if role in peak:
                peak[role] = max(peak[role], process.rss)
        time.sleep(0.1)
    assert project.ended(client).code == 0, project.story()
    return peak["supervisor"] + 2 * peak["worker"]


def _noted(project, what):
    try:
        lines = (project.folder / "noted").read_text().splitlines()
    except FileNotFoundError:
        return []
    return sorted(line.split()[1] for line in lines if line.split()[0] == what)


def _outcomes(project):
    (rows,) = project.query("SELECT outcome FROM attempts ORDER BY task, number")
    return [outcome for (outcome,) in rows]


def _count(project, sql):
    return dict(project.query(sql)[0])


def _next_supervisor(project, first):
    """The client notices its absence within a second or two."""
    found: list[int] = []

    def is_there():
        found[:] = [pid for pid in project.supervisors() if pid != first]
        return found

    wait_for(is_there, "the next supervisor", story=project.story)
    return found[0]


def _is_settled(project, supervisor):
    """It has ticked for seconds, so it has done everything it is going to do. The status of an
    unchanged host is written once a second."""
    with project.open() as hv:
        seen = set()

        def has_ticked():
            if hv.launcher.supervisor() == supervisor:
                seen.add((hv.launcher.read_status() or {}).get("at"))
            return len(seen) > 2

        wait_for(has_ticked, "some ticks", story=project.story)
    return True


def _is_pending(pid, number):
    """Until it is delivered, a second signal of the same kind has no effect."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    masks = [int(line.split()[1], 16) for line in status if line.startswith(("SigPnd", "ShdPnd"))]
    return any(mask >> (number - 1) & 1 for mask in masks)


def _stays(condition, seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not condition():
            return False
        time.sleep(0.05)
    return True
