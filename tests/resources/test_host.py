"""Proof of death: a pid alone proves nothing, a zombie has ended, another boot is unknown."""

import os
import subprocess
import sys

import pytest

from hypervisor.queue.lease import Worker
from hypervisor.resources.host import LocalHost

host = LocalHost()
FAR = 2**22 + 5  # above any pid that Linux gives out


def worker(pid, start=None, boot=None):
    found = host.process_start(pid) if start is None else start
    return Worker("w", "w", host.host(), host.boot() if boot is None else boot, pid, found or 0)


def test_this_process_lives():
    assert host.process_start(os.getpid()) == host.process_start(os.getpid())
    assert host.is_gone(worker(os.getpid())) is False


def test_a_child_lives_until_it_ends_and_a_zombie_has_ended():
    child = subprocess.Popen(
        [sys.executable, "-Sc", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
    )
    held = worker(child.pid)
    assert host.is_gone(held) is False
    assert child.stdin is not None
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, but not yet collected
    assert os.path.exists(f"/proc/{child.pid}") or sys.platform != "linux"
    assert host.process_start(child.pid) is None
    assert host.is_gone(held) is True
    child.wait()
    assert host.is_gone(held) is True


def test_a_pid_given_to_another_process_is_not_the_worker():
    earlier = worker(os.getpid()).pid_start - 1
    assert host.is_gone(worker(os.getpid(), start=earlier)) is True


@pytest.mark.parametrize("pid", [FAR, 2**31 - 1, 2**62])
def test_a_pid_that_nobody_has(pid):
    assert host.process_start(pid) is None
    assert host.is_gone(worker(pid, start=1)) is True


@pytest.mark.parametrize("pid", [0, -1])
def test_no_pid_no_proof(pid):
    assert host.is_gone(worker(pid, start=1)) is None


@pytest.mark.parametrize("boot", ["", "another boot or container"])
def test_processes_of_another_boot_are_unknown(boot):
    assert host.is_gone(worker(os.getpid(), boot=boot)) is None
    assert host.is_gone(worker(FAR, start=1, boot=boot)) is None


def test_a_process_that_is_hidden_from_us_is_unknown_not_gone(monkeypatch):
    """As with hidepid: /proc shows nothing, but the process is another user's and lives."""

    def forbidden(_pid, _signal):
        raise PermissionError

    monkeypatch.setattr(os, "kill", forbidden)
    assert host.is_gone(worker(FAR, start=1)) is None


def test_names_with_brackets_and_spaces_do_not_confuse_the_start_time(tmp_path):
    if sys.platform != "linux":
        pytest.skip("reads /proc")
    odd = tmp_path / "a) R (b 1 2"
    odd.symlink_to(sys.executable)
    child = subprocess.Popen(
        [odd, "-ISc", "import sys; sys.stdin.read()"],
        stdin=subprocess.PIPE,
        executable=odd,
        stderr=subprocess.DEVNULL,
    )
    try:
        start, own = host.process_start(child.pid), host.process_start(os.getpid())
        assert start is not None and own is not None
        assert start >= own
    finally:
        child.communicate()


def test_the_boot_names_this_boot_and_namespace():
    assert host.boot() == LocalHost().boot() != ""
    assert host.host()
