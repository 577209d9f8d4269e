"""A worker's fence: what happens to an attempt as the lease of its host ends.

The fence acts on all processes below its own, so each test runs it in a process of its own.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hypervisor.queue.host import LocalLease
from hypervisor.runs.processes.lease_file import LeaseFile, boot_clock

LEASE = 60_000
HELD = LocalLease("a-1", 4, LEASE, 0)

PROGRAM = """
import subprocess, sys, time
from types import SimpleNamespace
from hypervisor.queue.host import LocalLease
from hypervisor.runs.fence import Fence
from hypervisor.runs.processes.lease_file import LeaseFile, boot_clock
from hypervisor.runs.workspaces import StoppedEarly

LEASE = 60_000
file = LeaseFile(sys.argv[1])
cuts = []
store = SimpleNamespace(waits_for=lambda: 9.0, cut=lambda: cuts.append(1))

def age(share, epoch=4):
    lease = LocalLease("a-1", epoch, LEASE, boot_clock() - int(LEASE * share))
    file.publish(lease)
    return lease

def fence(on_cut="freeze"):
    made = Fence(store, file, age(0), on_cut, "w")
    made._renew = lambda lease: None
    return made

def state():
    with open(f"/proc/{child.pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0]

def wait_for(*states):
    until = time.monotonic() + 10
    while state() not in states and time.monotonic() < until:
        time.sleep(0.002)
    return state() in states

attempt = SimpleNamespace(task=SimpleNamespace(id="t", attempts=1))
child = subprocess.Popen(["sleep", "100"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

def runs():
    return state() not in "TtZX"
"""


@pytest.fixture
def run(tmp_path):
    def runner(text):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM + text, str(tmp_path / "run" / "x")],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return runner


def test_a_lease_has_its_phases():
    for share, phase in ((0, "held"), (39_999, "held"), (40_000, "late"), (53_999, "late")):
        assert HELD.phase(share) == phase
    for share, phase in ((54_000, "ending"), (59_999, "ending"), (60_000, "over")):
        assert HELD.phase(share) == phase
    assert not HELD.is_neglected(19_999) and HELD.is_neglected(20_000)
    assert HELD.ended().phase(0) == "over"


def test_the_file_keeps_the_lease_of_the_latest_epoch(tmp_path):
    file = LeaseFile(str(tmp_path / "run" / "x"))
    assert file.read() is None
    file.publish(HELD)
    assert file.read() == HELD == LeaseFile(str(tmp_path / "run" / "x")).read()
    file.publish(HELD._replace(epoch=3, sent_at=99))
    assert file.read() == HELD, "a process that was paused comes too late"
    file.publish(HELD._replace(epoch=1), is_new=True)
    assert file.read() == HELD._replace(epoch=1), "the database was restored"
    file.publish(HELD._replace(epoch=5))
    assert file.read() == HELD._replace(epoch=5)
    with file.alone() as alone, file.alone() as other:
        assert alone and not other
    file.remove()
    assert file.read() is None


def test_the_clock_counts_from_boot():
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    assert abs(boot_clock() / 1000 - uptime) < 5


def test_an_attempt_is_paused_before_the_end_and_continues_if_the_lease_is_renewed(run):
    run("""
f = fence()
f.enter(attempt)
f.tick(); assert runs()
age(0.8); f.tick(); assert runs() and not f.may_claim()
age(0.95); f.tick(); assert wait_for("T")
assert f.cut() is None
age(0.1); f.tick(); assert wait_for("S", "R", "D") and f.may_claim()
assert f.leave() is None and not cuts
child.kill()
""")


def test_at_the_end_it_is_killed_and_the_connection_is_cut(run):
    run("""
f = fence()
f.enter(attempt)
age(0.95); f.tick(); assert wait_for("T")
age(1.0); f.tick(); assert wait_for("Z")
stop = f.leave()
assert (stop.task, stop.attempt, stop.next) == ("t", 1, "release") and cuts
""")


def test_an_attempt_is_killed_if_the_host_has_a_new_lease(run):
    run("""
f = fence()
f.enter(attempt)
age(0, epoch=6); f.tick(); assert wait_for("Z") and f.leave()
assert not f.may_claim()
assert f.renewed_since() and not f.renewed_since() and f.may_claim()
""")


def test_it_is_stopped_earlier_or_left_alone_as_the_batch_asks(run):
    run("""
f = fence("finish")
f.enter(attempt)
age(1.5); f.tick(); assert runs() and f.cut() is None
f = fence("stop")
f.enter(attempt)
f.tick(); assert runs()
age(0.7); f.tick(); assert wait_for("Z") and f.cut()
""")


def test_nothing_starts_without_a_lease_and_processes_between_attempts_are_left_alone(run):
    run("""
f = fence()
for share, epoch in ((0.95, 4), (1.2, 4), (0, 5)):
    age(share, epoch)
    try:
        f.enter(attempt)
        raise SystemExit("it started")
    except StoppedEarly as early:
        assert early.stop.next == "release"
    f.tick(); assert runs()
child.kill()
""")
