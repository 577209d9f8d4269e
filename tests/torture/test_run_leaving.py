"""A supervisor that exits or has problems: no submitted run is lost."""

from __future__ import annotations

import subprocess
import sys

from tests.torture.fleet import DEADLINE, PROGRAM

# It has found nothing to do for long enough; then, before it is gone, a client submits a run
# and relies on it.
SUBMITTED_LATE = """
import subprocess, sys
from hypervisor.runs.processes.launcher import LocalLauncher
from hypervisor import app
from hypervisor.entry_points import serve

leave, client = LocalLauncher.release, sys.argv[3:]

def leave_late(self, is_needed, at_once):
    if client:
        subprocess.run(client, check=True)
        client.clear()
    return leave(self, is_needed, at_once)

LocalLauncher.release, app.IDLE_MS = leave_late, 100
serve()
"""
# The host cannot start anything at first.
STARTS_NOTHING = """
import errno, subprocess, sys
from hypervisor.runs.processes.launcher import LocalLauncher
from hypervisor.entry_points import serve
from hypervisor.runs.supervisor import Supervisor

start, troubles = LocalLauncher.start_worker, [OSError(errno.EAGAIN, "not now")] * 3
hold, stays = LocalLauncher.acquire_lock, Supervisor._has_reason_to_stay

def start_later(self, *words):
    if troubles:
        raise troubles.pop()
    return start(self, *words)

def hold_and_submit(self):
    held = hold(self)
    subprocess.Popen(sys.argv[3:])
    return held

LocalLauncher.start_worker, LocalLauncher.acquire_lock = start_later, hold_and_submit
Supervisor._has_reason_to_stay = lambda *all: bool(troubles) or stays(*all)
serve()
"""
ITEMS = range(1, 6)


def supervise(project, script):
    """Be the supervisor until it ends. The client starts when the script says so; only the
    client has the variable that its commands look for."""
    listed = project.folder / "items"
    listed.write_text("".join(f"{item}\n" for item in ITEMS))
    command = ("sh", "-c", 'test "$MARKED" = yes && echo $0 >> ran', "{}")
    client = ["env", "MARKED=yes", *PROGRAM, "run", "--detach", "--items", str(listed)]
    return subprocess.run(
        [sys.executable, "-I", "-c", script, "supervise", "--detached", *client, "--", *command],
        cwd=project.folder,
        env={**project.env, "HYPERVISOR_STORE": project.store},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


def ran(project):
    return sorted(map(int, (project.folder / "ran").read_text().split()))


def test_a_run_that_comes_at_the_last_moment_is_run_as_it_was_submitted(project):
    ended = supervise(project, SUBMITTED_LATE)
    assert ended.returncode == 0, ended.stderr
    assert project.states() == {"done": len(ITEMS)}, project.story()
    assert ran(project) == list(ITEMS)
    project.wait_until_left()


def test_a_host_that_can_start_nothing_for_a_moment_ends_no_supervisor(project):
    ended = supervise(project, STARTS_NOTHING)
    assert ended.returncode == 0, ended.stderr
    assert "not now" in ended.stderr
    assert project.states() == {"done": len(ITEMS)}, project.story()
    assert ran(project) == list(ITEMS)
    project.wait_until_left()
