"""What a supervisor leaves in the runtime folder when it ends."""

from __future__ import annotations

import errno
import os
import subprocess
from tempfile import TemporaryDirectory
from threading import Thread

import pytest

from hypervisor.core.errors import StoreUnavailable
from hypervisor.core.places import Places, is_in_memory
from hypervisor.runs.processes import kept_environments
from hypervisor.runs.processes.launcher import LocalLauncher


@pytest.fixture
def memory():
    if not (os.path.isdir("/dev/shm") and is_in_memory("/dev/shm")):
        pytest.skip("needs a file system in memory on /dev/shm")
    with TemporaryDirectory(dir="/dev/shm") as folder:
        yield folder


@pytest.fixture
def launcher(tmp_path, memory):
    return LocalLauncher("nowhere", Places(str(tmp_path), os.path.join(memory, "run", "store")))


@pytest.fixture
def client(launcher):
    """Another process, as far as locks are concerned."""
    return LocalLauncher("nowhere", launcher.places)


def kept(launcher):
    return sorted(set(os.listdir(launcher.places.runtime)) - {"supervisor.lock", "submitting.lock"})


def no():
    return False


def yes():
    return True


def test_nothing_that_was_kept_for_workers_is_left(launcher, client):
    client.keep_environment("b1")
    assert launcher.acquire_lock() is not None
    assert client.supervisor() == os.getpid()
    launcher.publish_status({"target": 2})
    for name in ("governor.json.new", "b2.env.5eed.new"):
        with open(os.path.join(launcher.places.runtime, name), "w") as file:
            file.write('{"tar')  # a process was killed while writing it
    assert launcher.release(no)
    assert kept(launcher) == []
    assert client.supervisor() is None


def test_what_a_client_removes_in_the_meantime_keeps_nothing_else_there(
    launcher, client, monkeypatch
):
    client.keep_environment("b2")
    launcher.acquire_lock()
    launcher.publish_status({"target": 2})
    listed = ["gone.env", *os.listdir(launcher.places.runtime)]
    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", lambda path: listed)
        assert launcher.release(no)
    assert kept(launcher) == []


def test_nothing_to_tidy_is_fine(launcher):
    launcher.acquire_lock()
    assert launcher.release(no)
    assert launcher.release(no), "and to leave twice is, too"


def test_it_does_not_exit_while_a_run_is_being_submitted(launcher, client):
    """Its tasks are not in the store yet, so there seems to be nothing to do."""
    launcher.acquire_lock()
    with client.submitting():
        client.keep_environment("b1")
        assert not launcher.release(no)
        assert client.supervisor() == os.getpid()
    assert client.environment("b1") == dict(os.environ)
    assert launcher.release(no)


def test_work_that_came_while_it_made_up_its_mind_keeps_a_supervisor(launcher, client):
    launcher.acquire_lock()
    client.keep_environment("b1")
    assert not launcher.release(yes)
    assert client.supervisor() == os.getpid()
    assert client.environment("b1") == dict(os.environ)


def test_a_client_that_checks_while_it_exits_sees_none(launcher, client):
    """Otherwise they would rely on one that has looked for work before theirs was added."""
    launcher.acquire_lock()
    seen = []
    look = Thread(target=lambda: seen.append(client.supervisor()))

    def is_needed():
        look.start()
        look.join(0.05)
        return bool(seen)

    assert launcher.release(is_needed)
    look.join()
    assert seen == [None]


def test_one_that_leaves_at_once_leaves_environments_for_the_next(launcher, client):
    launcher.acquire_lock()
    client.keep_environment("b1")
    assert launcher.release(yes, at_once=True)
    assert client.supervisor() is None
    assert kept(launcher) == ["b1.env"]
    with client.submitting():
        launcher.acquire_lock()
        assert launcher.release(no, at_once=True), "nobody has to be waited for"
    assert client.environment("b1") == dict(os.environ)


def test_one_that_cannot_tell_whether_there_is_work_stays_and_is_found(launcher, client):
    launcher.acquire_lock()
    with pytest.raises(StoreUnavailable):
        launcher.release(_store_is_away)
    assert client.supervisor() == os.getpid()


def _store_is_away():
    raise StoreUnavailable("on purpose")


def test_one_that_was_stopped_while_it_left_stops_nobody_else(launcher, client, monkeypatch):
    monkeypatch.setattr(kept_environments, "PATIENCE", 0.05)
    launcher.acquire_lock()
    assert launcher.release(lambda: client.supervisor() is None)
    assert client.supervisor() is None


def test_one_that_is_shutting_down_is_not_starting(launcher, client):
    """Its process may need a moment longer to end."""
    child = subprocess.Popen(["sleep", "60"])
    try:
        client._coming_up = child.pid
        launcher.acquire_lock()
        launcher.release(no)
        assert client.supervisor() == 0
        with open(launcher._lock(), "w") as file:
            file.write(str(child.pid))
        assert client.supervisor() is None
    finally:
        child.kill()
        child.wait()


def test_a_lock_that_cannot_be_signed_is_not_kept(launcher, client, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="full"):
            launcher.acquire_lock()
    assert client.acquire_lock() is not None


def test_a_run_that_is_over_takes_away_its_own_environment_only(launcher, client):
    client.keep_environment("b1")
    launcher.keep_environment("b1")  # it is run again with other items
    client.forget_environment("b1")
    assert launcher.environment("b1") == dict(os.environ)
    launcher.forget_environment("b1")
    assert launcher.environment("b1") is None


def test_no_environment_is_deleted_while_a_run_is_being_submitted(launcher, client):
    """It may belong to the new run by then."""
    client.keep_environment("b1")
    with launcher.submitting():
        client.forget_environment("b1")
        assert launcher.environment("b1") == dict(os.environ)
    client.forget_environment("b1")
    assert launcher.environment("b1") is None


def test_no_environment_is_kept_on_a_disk(tmp_path):
    if is_in_memory(str(tmp_path)):
        pytest.skip("there is no disk here")
    launcher = LocalLauncher("nowhere", Places(str(tmp_path), str(tmp_path / "run" / "store")))
    assert not launcher.keep_environment("b1")
    assert launcher.environment("b1") is None
    assert [file for file in (tmp_path / "run").rglob("*") if file.is_file()] == []


def test_two_who_run_the_same_batch_at_once_are_not_in_each_others_way(
    launcher, client, monkeypatch
):
    rename = os.rename

    def slowly(old, new):
        monkeypatch.setattr(os, "rename", rename)
        client.keep_environment("b1")
        rename(old, new)

    monkeypatch.setattr(os, "rename", slowly)
    launcher.keep_environment("b1")
    assert launcher.environment("b1") == dict(os.environ)
    assert kept(launcher) == ["b1.env"]
