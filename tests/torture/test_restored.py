"""A backup copied over a store beside its log: refused, never silently ignored."""

from __future__ import annotations

import os
import shutil

import apsw
import pytest

import hypervisor
from hypervisor.core import errors


def _killed_while_open(fork_server, path):
    """Leave a log behind, as a kill does."""
    child = fork_server.start("add_and_stay", str(path), 5)
    assert child.hear() == "added"
    child.kill()
    child.wait()
    assert os.path.getsize(f"{path}-wal") > 0


@pytest.fixture
def store(tmp_path, fork_server):
    """A store with a backup, changed since and killed."""
    path = tmp_path / "data" / "store.db"
    with hypervisor.open(path) as hv:
        hv.add([hypervisor.NewTask("in the backup")])
    shutil.copy(path, tmp_path / "backup.db")
    _killed_while_open(fork_server, path)
    return path


def _copy(backup, path):
    shutil.copyfile(backup, path)


def _copy_with_times(backup, path):
    shutil.copy2(backup, path)


def _move(backup, path):
    shutil.copy2(backup, f"{backup}.again")
    os.rename(f"{backup}.again", path)


HOW = pytest.mark.parametrize("restore", [_copy, _copy_with_times, _move])


@HOW
def test_a_backup_beside_an_old_log_is_refused_until_the_log_is_removed(store, tmp_path, restore):
    restore(tmp_path / "backup.db", store)
    before = {path.name: path.read_bytes() for path in store.parent.iterdir()}
    for _ in range(2):
        with pytest.raises(errors.StoreUnavailable, match="restored a backup") as caught:
            hypervisor.open(store)
    assert "Nothing was changed;" in str(caught.value)
    assert {path.name: path.read_bytes() for path in store.parent.iterdir()} == before
    for name in ("store.db-wal", "store.db-shm"):
        (store.parent / name).unlink(missing_ok=True)
    with hypervisor.open(store) as hv:
        assert [task.title for task in hv.list_tasks()] == ["in the backup"]


def test_a_store_that_was_only_killed_opens(store):
    with hypervisor.open(store) as hv:
        assert len(hv.list_tasks()) == 6


def test_a_copy_of_the_whole_folder_opens(store, tmp_path):
    shutil.copytree(store.parent, tmp_path / "copied", copy_function=shutil.copyfile)
    with hypervisor.open(tmp_path / "copied" / "store.db") as hv:
        assert len(hv.list_tasks()) == 6


def test_a_backup_of_file_and_log_restored_together_opens(store, tmp_path):
    shutil.copytree(store.parent, tmp_path / "both")
    with hypervisor.open(store) as hv:
        hv.add([hypervisor.NewTask("after the backup")])
    for name in ("store.db", "store.db-wal"):
        shutil.copyfile(tmp_path / "both" / name, store.parent / name)
    with hypervisor.open(store) as hv:
        assert len(hv.list_tasks()) == 6


def test_an_unrecorded_checkpoint_is_not_a_restored_backup(store):
    """Another program may have copied the log into the file."""
    other = apsw.Connection(str(store))
    other.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    other.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
    other.close()
    assert os.path.getsize(f"{store}-wal") > 0
    with hypervisor.open(store) as hv:
        assert len(hv.list_tasks()) == 6
