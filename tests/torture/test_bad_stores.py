"""Whatever is wrong with a store: one clear line, and the data as they were."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import apsw
import pytest

import hypervisor
from hypervisor.core import errors
from hypervisor.core.mounts import network_file_system
from hypervisor.store import schema
from tests.torture.refusals import assert_clear, assert_refused, contents


@pytest.fixture
def made(tmp_path):
    """A store with some tasks, closed."""
    folder = tmp_path / "made"
    with hypervisor.open(folder / "store.db") as hv:
        hv.add([hypervisor.NewTask(f"task {n}", body="x" * 500) for n in range(100)])
    return folder / "store.db"


# Files with more than one name


@pytest.mark.parametrize("there", [True, False])
def test_a_link_is_the_store_that_it_leads_to(made, tmp_path, there):
    real = made if there else tmp_path / "new.db"
    link = tmp_path / "elsewhere" / "link.db"
    link.parent.mkdir()
    link.symlink_to(real)
    with hypervisor.open(link) as hv, hypervisor.open(real) as other:
        (task,) = hv.add([hypervisor.NewTask("by the link", priority="critical")]).ids
        (lease,) = other.claim("me")
        assert lease.task.id == task and hv.complete(lease.token).state == "done"
        assert hv.outputs.path(task, 1) == other.outputs.path(task, 1)
    assert [path.name for path in link.parent.iterdir()] == ["link.db"]


def test_a_hard_link_is_refused(made, tmp_path):
    os.link(made, tmp_path / "second.db")
    before = contents(made.parent)
    for name in (made, tmp_path / "second.db"):
        assert "a second hard link" in assert_refused(name, errors.StoreUnavailable)
    assert contents(made.parent) == before
    (tmp_path / "second.db").unlink()
    hypervisor.open(made).close()


# Files that are not what they should be


def test_empty_file_is_a_new_store(tmp_path):
    path = tmp_path / "store.db"
    path.touch()
    with hypervisor.open(path) as hv:
        assert hv.add([hypervisor.NewTask("first")]).ids


@pytest.mark.parametrize(
    "content",
    [
        os.urandom(10_000),
        b"#!/bin/sh\necho this is a text file\n" * 200,
        b"ten bytes\n",
        b"SQLite format 3\0" + os.urandom(5_000),
        bytes(8_192),
    ],
    ids=["random", "text", "ten bytes", "header then random", "zeros"],
)
def test_no_database_at_all(tmp_path, content):
    path = tmp_path / "store.db"
    path.write_bytes(content)
    message = assert_refused(path, errors.StoreBroken)
    assert str(path) in message and "--store" in message
    assert contents(tmp_path) == {"store.db": content}


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_foreign_database(tmp_path, mode):
    path = tmp_path / "store.db"
    foreign = apsw.Connection(str(path))
    foreign.pragma("journal_mode", mode)
    foreign.execute("CREATE TABLE recipes (name); INSERT INTO recipes VALUES ('soup')")
    foreign.close()
    before = contents(tmp_path)
    assert "not a Hypervisor store" in assert_refused(path, errors.StoreBroken)
    assert contents(tmp_path) == before


def test_foreign_database_that_only_says_whose_it_is(tmp_path):
    path = tmp_path / "store.db"
    foreign = apsw.Connection(str(path))
    foreign.pragma("application_id", 77)
    foreign.close()
    before = contents(tmp_path)
    assert_refused(path, errors.StoreBroken)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("kept", [0.05, 0.3, 0.6, 0.95])
def test_truncated_store(made, kept):
    """Truncated anywhere: refused when opened, or when the missing part is read."""
    whole = made.read_bytes()
    os.truncate(made, int(len(whole) * kept))
    before = made.read_bytes()
    with pytest.raises(errors.StoreBroken) as caught, hypervisor.open(made) as hv:
        hv.list_tasks(limit=1_000)
        hv.events(limit=1_000)
        hv.add([hypervisor.NewTask(f"more {n}", body="x" * 5_000) for n in range(200)])
    assert_clear(str(caught.value))
    assert made.read_bytes() == before


def test_store_with_overwritten_pages(made):
    data = bytearray(made.read_bytes())
    for at in range(8_192, len(data), 4_096):
        data[at : at + 200] = os.urandom(200)
    made.write_bytes(data)
    with pytest.raises(errors.StoreBroken) as caught, hypervisor.open(made) as hv:
        hv.list_tasks(limit=1_000)
    assert_clear(str(caught.value))
    assert made.read_bytes() == data


def test_newer_store(made):
    direct = apsw.Connection(str(made))
    direct.pragma("user_version", schema.VERSION + 1)
    direct.pragma("wal_checkpoint(truncate)")
    direct.close()
    before = contents(made.parent)
    message = assert_refused(made, errors.StoreNewer)
    assert "upgrade" in message
    assert contents(made.parent) == before


# Places where a store cannot be


def test_folder_in_place_of_the_file(tmp_path):
    path = tmp_path / "store.db"
    path.mkdir()
    assert_refused(path, errors.StoreUnavailable)
    assert list(path.iterdir()) == []


def test_missing_folders_are_made_but_not_through_a_file(tmp_path):
    with hypervisor.open(tmp_path / "a" / "b" / "store.db") as hv:
        assert hv.stats().total == 0
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    (tmp_path / "file").write_text("mine")
    assert_refused(tmp_path / "file" / "b" / "store.db", errors.StoreUnavailable)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("name", ["with space", "two\nlines", "ünï ☃ 名", "a?b=c#d%20", "'\"`$(x)"])
def test_any_name_will_do(tmp_path, name):
    path = tmp_path / name / f"{name}.db"
    with hypervisor.open(path) as hv:
        hv.add([hypervisor.NewTask("first")])
    with hypervisor.open(path) as hv:
        assert hv.stats().total == 1
    assert path.is_file()
    path.write_bytes(b"spoiled")
    for beside in path.parent.glob("*-*"):
        beside.unlink()
    assert_refused(path, errors.StoreBroken)


@pytest.fixture
def open_folder():
    """A folder that the user nobody can reach, too (a test's own is private)."""
    folder = Path(tempfile.mkdtemp(prefix="hv", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody without rights")
@pytest.mark.parametrize("what", ["file", "folder", "new file", "unreadable"])
def test_store_without_the_right_to_write(open_folder, tmp_path, fork_server, what):
    path = open_folder / "store.db"
    if what != "new file":
        with hypervisor.open(path) as hv:
            hv.add([hypervisor.NewTask("first")])
        path.chmod({"file": 0o444, "folder": 0o666, "unreadable": 0o600}[what])
    if what == "file":
        open_folder.chmod(0o777)
        for beside in open_folder.glob("store.db?*"):
            beside.chmod(0o666)
    before = contents(open_folder)
    answer = fork_server.start("as_nobody", str(path), str(tmp_path)).hear()
    kinds = ("store_unavailable",) if what in ("new file", "unreadable") else ()
    assert answer["code"] in ("store_read_only", *kinds), answer
    assert_clear(answer["message"])
    left = contents(open_folder)
    assert {name: left.get(name) for name in before} == before


# Too little space


@pytest.mark.parametrize("completing", [False, True], ids=["adding", "completing"])
@pytest.mark.parametrize("limit", ["full_disk", "short_files"])
def test_no_space_left(fork_server, tmp_path, limit, completing):
    child = fork_server.start(limit, str(tmp_path), 1_200_000, completing)
    told = child.hear()
    assert child.wait() == 0
    if "skip" in told:
        pytest.skip(told["skip"])
    assert told["code"] == "store_full", told
    assert_clear(told["message"])
    assert told["kept"], "the refused change left something behind"
    assert told["acknowledged"] > 3 and told["integrity"] == "ok"
    assert sum(told["after"].values()) == sum(told["before"].values()) + 1


def test_opening_on_a_full_disk_says_that_it_is_full(fork_server, tmp_path):
    child = fork_server.start("opened_on_a_full_disk", str(tmp_path), 1_000_000)
    told = child.hear()
    if "skip" in told:
        pytest.skip(told["skip"])
    for refusal in told:
        assert refusal["code"] == "store_full", refusal
        assert_clear(refusal["message"])
    assert child.hear() == 1, "the store that was there"


# Network file systems


TABLE = r"""
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /home rw,relatime shared:2 - nfs4 server:/home rw,vers=4.2
31 30 8:2 / /home/me/local rw,relatime - xfs /dev/sdb1 rw
32 22 0:41 / /mnt/my\040share rw master:3 propagate_from:2 - cifs //server/share rw
33 22 0:42 / /mnt/back\134slash rw - fuse.sshfs me@host:/ rw
34 22 0:43 / /over rw - nfs server:/a rw
35 34 8:3 / /over rw - ext4 /dev/sdc1 rw
36 22 8:4 / /under rw - ext4 /dev/sdd1 rw
37 36 0:44 / /under rw - nfs server:/b rw
38 22 0:45 / /mnt/new\012line rw - 9p share rw
39 22 0:46 / /fuse rw - fuse.mergerfs pool rw
garbage
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib/project", None),
        ("/home", "nfs4"),
        ("/home/me/project", "nfs4"),
        ("/homework", None),
        ("/home/me/local/project", None),
        ("/mnt/my share/project", "cifs"),
        ("/mnt/my", None),
        ("/mnt/back\\slash", "fuse.sshfs"),
        ("/mnt/new\nline/x", "9p"),
        ("/over/x", None),
        ("/under/x", "nfs"),
        ("/fuse/x", None),
    ],
)
def test_network_file_system(path, kind):
    assert network_file_system(path, TABLE) == kind


def test_mount_with_an_odd_name_hides_no_other():
    odd = "40 22 8:5 / /odd\u2028 - name rw - ext4 /dev/sde rw\n"
    assert network_file_system("/home/me", odd + TABLE) == "nfs4"


def test_store_on_a_network_file_system_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("hypervisor.store.sqlite_file.network_file_system", lambda folder: "nfs4")
    message = assert_refused(tmp_path / "store.db", errors.StoreUnavailable)
    assert "nfs4" in message and "postgresql://" in message


# Processes


@pytest.mark.parametrize("database", ["SQLite", "PostgreSQL"])
def test_use_after_fork_is_refused(fork_server, tmp_path, request, database):
    where = tmp_path / "store.db"
    if database == "PostgreSQL":
        where = request.getfixturevalue("postgres_url")
    child = fork_server.start("use_after_fork", str(where))
    *refused, own, parent = child.hear_all()
    assert [each["code"] for each in refused] == ["store_unavailable"] * 3
    for each in refused:
        assert_clear(each["message"])
    assert (own, parent) == ({"own": 1}, {"parent": 2})


def test_doctor_names_a_table_that_is_gone(made):
    connection = apsw.Connection(str(made))
    connection.execute("DROP TABLE stops")
    connection.close()
    with hypervisor.open(made) as hv:
        assert [(c.found, c.ok) for c in hv.doctor() if c.name == "integrity"] == [
            ("table stops is missing", False)
        ]


def test_text_that_is_none_is_damage(made):
    connection = apsw.Connection(str(made))
    connection.execute("UPDATE details SET title = CAST(x'ff41' AS TEXT)")
    connection.close()
    with hypervisor.open(made) as hv, pytest.raises(errors.StoreBroken) as caught:
        hv.list_tasks()
    assert_clear(str(caught.value))


@pytest.mark.parametrize(
    "damage", ["data = '{\"half\": '", "data = x'00ff'", "at = 'noon'", "kind = x'00'"]
)
def test_an_event_that_makes_no_sense_is_damage(made, damage):
    connection = apsw.Connection(str(made))
    connection.execute(f"UPDATE events SET {damage} WHERE id = 7")
    connection.close()
    with hypervisor.open(made) as hv:
        assert len(hv.events(limit=6)) == 6, "what is whole can be read"
        with pytest.raises(errors.StoreBroken) as caught:
            hv.events(limit=100)
    assert_clear(str(caught.value))
