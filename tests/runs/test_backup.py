"""Backing up a store in use, and restoring it."""

from __future__ import annotations

import io
import tarfile
import threading
from contextlib import closing

import pytest

import hypervisor
from hypervisor.core.errors import InvalidInput, StoreBroken, StoreNewer, WrongState
from hypervisor.runs.backup import MANIFEST, backup, restore_backup


@pytest.fixture
def data(tmp_path):
    return tmp_path / "project" / ".hypervisor"


@pytest.fixture
def hv(data):
    with closing(hypervisor.open(data)) as opened:
        hub = data / "git" / "r.git"
        for path, text in (
            (data / "outputs" / "a" / "a.1.log", "printed"),
            (data / "git" / "work" / "t" / "clone.txt", "left out"),
            (data / "agents" / "t" / "home" / "secret", "left out"),
            (hub / "refs" / "hv" / "one", "commit"),
            (hub / "objects" / "aa" / "bb", "object"),
        ):
            path.parent.mkdir(parents=True)
            path.write_text(text)
        (data / "config.toml").write_text("[run]\nnice = 3\n")
        yield opened


@pytest.mark.parametrize("name", ["b.tar", "b.tgz"])
def test_what_was_backed_up_comes_back(hv, data, tmp_path, name):
    ids = hv.add(["one", "two"]).ids
    done = backup(hv, str(tmp_path / name))
    assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    there = tmp_path / "other" / ".hypervisor"
    assert restore_backup(str(tmp_path / name), str(there))._replace(path="") == done._replace(
        path=""
    )
    with closing(hypervisor.open(there)) as other:
        assert {task.id for task in other.list_tasks()} == set(ids)
        assert other.settings.nice == 3
        assert all(check.ok for check in other.doctor() if check.name != "sandbox")
    assert (there / "outputs/a/a.1.log").read_text() == "printed"
    assert (there / "git/r.git/objects/aa/bb").read_text() == "object"
    assert not (there / "git/work").exists() and not (there / "agents").exists()


def test_refs_are_read_before_the_objects_they_need(hv, tmp_path):
    backup(hv, str(tmp_path / "b.tar"))
    with tarfile.open(tmp_path / "b.tar") as tar:
        names = tar.getnames()
    assert names.index("git/r.git/refs/hv/one") < names.index("git/r.git/objects/aa/bb")
    assert names[0] == "store.db" and names[-1] == MANIFEST


def test_a_backup_is_consistent_while_others_write(hv, data, tmp_path):
    """Each write adds two tasks at once: a copy never has one of them alone."""
    stop = threading.Event()

    def write():
        with closing(hypervisor.open(data)) as other:
            while not stop.is_set():
                other.add(["left", "right"])

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(3):
            path = str(tmp_path / f"b{number}.tar")
            backup(hv, path)
            restore_backup(path, str(tmp_path / f"r{number}"))
            with closing(hypervisor.open(tmp_path / f"r{number}")) as copy:
                titles = [task.title for task in copy.list_tasks(limit=100_000)]
                assert titles.count("left") == titles.count("right")
                assert {check.name: check.ok for check in copy.doctor()}["integrity"]
    finally:
        stop.set()
        writer.join()


def test_nothing_is_ever_replaced(hv, data, tmp_path):
    path = tmp_path / "b.tar"
    backup(hv, str(path))
    with pytest.raises(WrongState, match="already exists"):
        backup(hv, str(path))
    with pytest.raises(WrongState, match="never replaces a store"):
        restore_backup(str(path), str(data))
    assert [left.name for left in tmp_path.iterdir()].count("b.tar") == 1
    assert not list(tmp_path.glob(".hv-*")) and not list(data.parent.glob(".hv-*"))


def changed(source, target, change):
    """A copy of a tar file with other content: by name and text."""
    with tarfile.open(source) as old, tarfile.open(target, "w") as new:
        for info in old:
            member = old.extractfile(info)
            assert member is not None
            name, text = change(info.name, member.read())
            other = tarfile.TarInfo(name)
            other.size = len(text)
            new.addfile(other, io.BytesIO(text))


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda name, text: (name, text.replace(b"printed", b"PRINTED")), StoreBroken),
        (lambda name, text: (name.replace("outputs", "../outputs"), text), StoreBroken),
        (lambda name, text: (name.replace(MANIFEST, "other"), text), StoreBroken),
        (lambda name, text: (name, text.replace(b'"format": 1', b'"format": 9')), StoreNewer),
    ],
)
def test_a_changed_backup_is_refused(hv, tmp_path, change, error):
    backup(hv, str(tmp_path / "b.tar"))
    changed(tmp_path / "b.tar", tmp_path / "c.tar", change)
    with pytest.raises(error, match="Nothing was changed"):
        restore_backup(str(tmp_path / "c.tar"), str(tmp_path / "there"))
    assert not (tmp_path / "there").exists() and not (tmp_path / "outputs").exists()


def test_what_is_not_a_backup_is_refused(hv, tmp_path):
    (tmp_path / "x.tar").write_text("no tar file")
    with pytest.raises(StoreBroken, match="cannot be read"):
        restore_backup(str(tmp_path / "x.tar"), str(tmp_path / "there"))
    with pytest.raises(InvalidInput, match="no such file"):
        restore_backup(str(tmp_path / "y.tar"), str(tmp_path / "there"))
    backup(hv, str(tmp_path / "b.tar"))
    whole = (tmp_path / "b.tar").read_bytes()
    (tmp_path / "x.tar").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StoreBroken):
        restore_backup(str(tmp_path / "x.tar"), str(tmp_path / "there"))
