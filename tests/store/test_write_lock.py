"""The lock that writers queue on: no process waits forever for a suspended one."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest

from hypervisor.core.errors import StoreUnavailable
from hypervisor.store import write_lock
from hypervisor.store.write_lock import WriteLock

STRAY = """
import fcntl, os, signal, sys, threading
from hypervisor.store.write_lock import WriteLock
lock = WriteLock(sys.argv[1])
lock.open()
other = os.open(sys.argv[1] + ".lock", os.O_RDWR)
fcntl.flock(other, fcntl.LOCK_EX)
threading.Timer(0.2, fcntl.flock, (other, fcntl.LOCK_UN)).start()
lock.take()
print("taken", signal.getitimer(signal.ITIMER_REAL), flush=True)
signal.raise_signal(signal.SIGALRM)
print("still here")
"""


@pytest.fixture
def lock(tmp_path):
    opened = WriteLock(str(tmp_path / "store.db"))
    opened.open()
    yield opened
    opened.close()
    signal.signal(signal.SIGALRM, signal.SIG_DFL)


@contextmanager
def held(tmp_path):
    file = os.open(tmp_path / "store.db.lock", os.O_RDWR)
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield lambda: fcntl.flock(file, fcntl.LOCK_UN)
    finally:
        os.close(file)


def test_a_wait_has_an_end(lock, tmp_path, monkeypatch):
    monkeypatch.setattr(write_lock, "MAX_WAIT", 0.05)
    with held(tmp_path), pytest.raises(StoreUnavailable, match="was stopped while writing"):
        lock.take()
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    lock.take()
    with pytest.raises(BlockingIOError), open(tmp_path / "store.db.lock") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_process_that_gave_up_holds_nothing(lock, tmp_path, monkeypatch):
    """The alarm may arrive when the lock has just been taken."""

    def taken_and_then(file, path):
        fcntl.flock(file, fcntl.LOCK_EX)
        raise StoreUnavailable("too late")

    monkeypatch.setattr(write_lock, "_wait", taken_and_then)
    monkeypatch.setattr(write_lock, "TRIES_BEFORE_SLEEP", 0)
    with pytest.raises(StoreUnavailable):
        lock.take()
    with open(tmp_path / "store.db.lock") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize("whose", ["a handler", "a timer", "a thread"])
def test_what_is_not_ours_to_use_is_left_alone(lock, tmp_path, monkeypatch, whose):
    monkeypatch.setattr(write_lock, "MAX_WAIT", 0.01)
    if whose == "a handler":
        signal.signal(signal.SIGALRM, lambda *_: None)
    if whose == "a timer":
        signal.setitimer(signal.ITIMER_REAL, 600)
    before = signal.getsignal(signal.SIGALRM)
    with held(tmp_path) as let_go:
        threading.Timer(0.1, let_go).start()
        if whose == "a thread":
            waiting = threading.Thread(target=lock.take)
            waiting.start()
            waiting.join(180)
            assert not waiting.is_alive()
        else:
            lock.take()
    assert signal.getsignal(signal.SIGALRM) is before
    assert (signal.setitimer(signal.ITIMER_REAL, 0)[0] > 500) is (whose == "a timer")


def test_another_alarm_means_what_it_would_without_us(tmp_path):
    told = subprocess.run(
        [sys.executable, "-c", STRAY, tmp_path / "store.db"],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert (told.stdout, told.returncode) == ("taken (0.0, 0.0)\n", -signal.SIGALRM)
