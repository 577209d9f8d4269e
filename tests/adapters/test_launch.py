"""What a supervisor leaves in the runtime folder when it ends."""

from __future__ import annotations

import os

import pytest

from hypervisor.adapters.launch import LocalLauncher
from hypervisor.adapters.places import Places
from hypervisor.domain.errors import StoreUnavailable


@pytest.fixture
def launcher(tmp_path):
    return LocalLauncher("nowhere", Places(str(tmp_path), str(tmp_path / "run" / "store")))


@pytest.fixture
def client(launcher):
    """Another process, as far as locks are concerned."""
    return LocalLauncher("nowhere", launcher.places)


def kept(launcher):
    return sorted(set(os.listdir(launcher.places.runtime)) - {"supervisor.lock"})


def no():
    return False


def test_nothing_that_was_kept_for_workers_is_left(launcher, client):
    client.keep_environment("b1")
    assert launcher.hold() is not None
    assert client.supervisor() == os.getpid()
    launcher.tell({"target": 2})
    for name in ("governor.json.new", "b2.env.5eed.new"):
        with open(os.path.join(launcher.places.runtime, name), "w") as file:
            file.write('{"tar')  # somebody was killed while he wrote
    assert launcher.leave(no)
    assert kept(launcher) == []
    assert client.supervisor() is None


def test_what_a_client_removes_meanwhile_keeps_nothing_else_there(launcher, client, monkeypatch):
    client.keep_environment("b2")
    launcher.hold()
    client.supervisor()
    launcher.tell({"target": 2})
    listed = ["gone.env", *os.listdir(launcher.places.runtime)]
    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", lambda path: listed)
        assert launcher.leave(no)
    assert kept(launcher) == []


def test_nothing_to_tidy_is_fine(launcher):
    launcher.hold()
    assert launcher.leave(no)


def test_who_submits_a_run_keeps_its_environment_until_its_tasks_are_seen(launcher, client):
    """The supervisor found nothing to do and leaves, just then."""
    launcher.hold()
    client.keep_environment("b1")
    assert launcher.leave(no)
    assert client.environment("b1") == dict(os.environ)


def test_work_that_came_while_it_made_up_its_mind_keeps_a_supervisor(launcher, client):
    launcher.hold()
    client.keep_environment("b1")
    client.supervisor()  # its tasks are in the store, and it relies on the one that is there
    assert not launcher.leave(lambda: True)
    assert client.supervisor() == os.getpid()
    assert client.environment("b1") == dict(os.environ)


def test_work_that_came_last_is_seen_after_the_lock_was_let_go(launcher, client):
    launcher.hold()
    answers = iter([False, True])
    assert not launcher.leave(lambda: next(answers))
    assert client.supervisor() == os.getpid(), "it has to be found again"


def test_one_that_cannot_tell_whether_there_is_work_stays_and_is_found(launcher, client):
    launcher.hold()
    looks = iter([lambda: False, _store_is_away])
    assert not launcher.leave(lambda: next(looks)())
    assert client.supervisor() == os.getpid()


def _store_is_away():
    raise StoreUnavailable("on purpose")


def test_another_that_has_come_meanwhile_sees_to_the_work(launcher, client):
    launcher.hold()

    def is_needed():
        return client.hold() is not None  # only once the lock is free

    assert launcher.leave(is_needed)
    assert launcher.supervisor() == os.getpid()


def test_a_run_that_is_over_takes_away_its_own_environment_only(launcher, client):
    client.keep_environment("b1")
    launcher.keep_environment("b1")  # somebody runs it again with other items
    client.forget_environment("b1")
    assert launcher.environment("b1") == dict(os.environ)
    launcher.forget_environment("b1")
    assert launcher.environment("b1") is None


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
