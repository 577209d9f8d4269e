"""Packs: many short outputs in a file, whole or not at all, whatever is in them."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hypervisor.runs.outputs import archive
from hypervisor.runs.outputs.files import Outputs
from hypervisor.runs.spec import Output

TASKS = ("1vwk5n0003n3", "1vwk5n0003n4", "1vwk5n0003n5")
OTHER = "1vwk5n0009n3"
HOSTILE = (b"", b"\n", b"\0\xff", b"1vwk5n0003n4.1 3\nabc\n", b"x" * 5000, "❯ grün".encode())


@pytest.fixture
def outputs(tmp_path):
    return Outputs(str(tmp_path))


@pytest.fixture
def writer():
    made = archive.Writer("7.ab")
    yield made
    made.close()


def read(outputs, task, attempt=1):
    return outputs.read(task, attempt, 0, 1 << 30)


def pack_of(outputs, task, worker="7.ab"):
    return Path(f"{outputs.folder_of(task)}/{worker}{archive.ENDING}")


def add(outputs, writer, task, text, attempt=1):
    writer.append(outputs.folder_of(task), task, attempt, text)


texts = st.one_of(st.sampled_from(HOSTILE), st.binary(max_size=300))


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(st.sampled_from((*TASKS, OTHER)), texts, st.booleans()), max_size=12))
def test_what_went_in_comes_out(tmp_path_factory, entries):
    outputs = Outputs(str(tmp_path_factory.mktemp("data")))
    writers = archive.Writer("7.ab"), archive.Writer("8.ab")
    expected = {}
    for number, (task, text, second) in enumerate(entries, 1):
        add(outputs, writers[second], task, text, number)
        expected[task, number] = text
        assert outputs.size(task, number) == len(text), "seen at once, beside what was known"
    for (task, number), text in expected.items():
        assert outputs.read(task, number, 0, 1 << 30) == text
        assert outputs.read(task, number, 2, 3) == text[2:5]
        assert outputs.read(task, number, len(text) + 1, 3) == b""
    assert {(o.task, o.attempt): o.size for o in outputs.all()} == {
        key: len(text) for key, text in expected.items()
    }
    for writer in writers:
        writer.close()


def test_a_pack_is_for_its_owner_only(outputs, writer):
    add(outputs, writer, TASKS[0], b"secret")
    pack = pack_of(outputs, TASKS[0])
    assert pack.stat().st_mode & 0o777 == 0o600
    assert pack.parent.stat().st_mode & 0o777 == 0o700


def test_nobody_else_s_output_is_found(outputs, writer):
    add(outputs, writer, TASKS[0], f"{TASKS[1]}.1 3\nabc\n".encode())
    assert outputs.size(TASKS[1], 1) is None and outputs.size(TASKS[0], 2) is None
    assert read(outputs, TASKS[1]) == b""
    pack_of(outputs, TASKS[0]).write_bytes(f"{OTHER}.1 3\nabc\n$.1 1\nx\n".encode())
    assert list(outputs.all()) == [] and outputs.size(OTHER, 1) is None


@pytest.mark.parametrize("cut", range(1, 22))
def test_half_a_record_is_none_and_keeps_nothing_back(outputs, cut):
    writer = archive.Writer("7.ab")
    add(outputs, writer, TASKS[0], b"first")
    whole = pack_of(outputs, TASKS[0]).stat().st_size
    add(outputs, writer, TASKS[1], b"second")
    writer.close()  # killed in the middle of a write
    os.truncate(pack_of(outputs, TASKS[0]), whole + cut)
    assert read(outputs, TASKS[0]) == b"first"
    assert outputs.size(TASKS[1], 1) is None
    again = archive.Writer("7.ab")  # a process of the same number, much later
    add(outputs, again, TASKS[2], b"third")
    again.close()
    assert read(outputs, TASKS[0]) == b"first" and read(outputs, TASKS[2]) == b"third"


def test_without_room_nothing_of_a_record_is_left(outputs, writer):
    add(outputs, writer, TASKS[0], b"first")
    size = pack_of(outputs, TASKS[0]).stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 30, before[1]))
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            add(outputs, writer, TASKS[1], b"x" * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert pack_of(outputs, TASKS[0]).stat().st_size == size
    add(outputs, writer, TASKS[2], b"third")
    assert read(outputs, TASKS[0]) == b"first" and read(outputs, TASKS[2]) == b"third"


def test_a_pack_that_was_removed_is_started_again(outputs, writer):
    add(outputs, writer, TASKS[0], b"first")
    os.unlink(pack_of(outputs, TASKS[0]))
    os.rmdir(outputs.folder_of(TASKS[0]))
    add(outputs, writer, TASKS[1], b"second")
    assert outputs.size(TASKS[0], 1) is None and read(outputs, TASKS[1]) == b"second"


def test_what_could_not_be_cut_is_cut_by_the_next_one(outputs, writer, monkeypatch):
    def broken(*_):
        raise OSError(errno.EIO, "Input/output error")

    write = os.write
    add(outputs, writer, TASKS[0], b"first")
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda handle, text: write(handle, text[:5]))
        patch.setattr(os, "ftruncate", broken)
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            add(outputs, writer, TASKS[1], b"second")
    add(outputs, writer, TASKS[2], b"third")
    assert [read(outputs, task) for task in TASKS] == [b"first", b"", b"third"]


def test_a_pack_that_was_replaced_is_read_again(outputs, writer):
    """A new file may get the number of the one before it."""
    add(outputs, writer, TASKS[0], b"first")
    assert read(outputs, TASKS[0]) == b"first"
    other = f"{TASKS[1]}.1 5\nother\n{TASKS[2]}.1 4\nmore\n"
    pack_of(outputs, TASKS[0]).write_text(other)
    assert [read(outputs, task) for task in TASKS] == [b"", b"other", b"more"]
    assert outputs.size(TASKS[0], 1) is None


def test_what_was_moved_since_it_was_found_is_found_again(outputs, monkeypatch):
    writer = archive.Writer("7.ab")
    for task in TASKS:
        add(outputs, writer, task, task.encode())
    writer.close()
    read_text = archive.text_of

    def after_another(index, key):
        monkeypatch.undo()
        Outputs(os.path.dirname(outputs.root)).remove([Output(TASKS[0], 1, 0, 0)])
        return read_text(index, key)

    monkeypatch.setattr(archive, "text_of", after_another)
    assert read(outputs, TASKS[2]) == TASKS[2].encode()


# Taking records out


def found(outputs):
    return {output.task: output for output in outputs.all()}


def test_what_its_writer_has_open_stays(outputs, writer):
    add(outputs, writer, TASKS[0], b"first")
    assert outputs.remove(outputs.all()) == [] and read(outputs, TASKS[0]) == b"first"
    add(outputs, writer, OTHER, b"elsewhere")  # so that it is done with the other one
    first = found(outputs)[TASKS[0]]
    assert outputs.remove([first]) == [first]
    assert outputs.size(TASKS[0], 1) is None and read(outputs, OTHER) == b"elsewhere"


def test_the_others_stay_and_get_no_younger(outputs):
    writer = archive.Writer("7.ab")
    for task in TASKS:
        add(outputs, writer, task, task.encode())
    writer.close()
    os.utime(pack_of(outputs, TASKS[0]), (1000, 1000))
    second = found(outputs)[TASKS[1]]
    assert outputs.remove([second]) == [second]
    assert {o.task: o.changed_at for o in outputs.all()} == {
        TASKS[0]: 1_000_000,
        TASKS[2]: 1_000_000,
    }
    assert [read(outputs, task) for task in TASKS] == [TASKS[0].encode(), b"", TASKS[2].encode()]


def test_the_last_one_takes_pack_and_folder_along(outputs):
    writer = archive.Writer("7.ab")
    for task in TASKS:
        add(outputs, writer, task, b"x")
    writer.close()
    assert len(outputs.remove(list(outputs.all()))) == 3
    assert os.listdir(outputs.root) == []


def test_a_writer_that_comes_back_writes_into_what_is_there_now(outputs, writer):
    add(outputs, writer, TASKS[0], b"first")
    add(outputs, writer, TASKS[1], b"second")
    add(outputs, writer, OTHER, b"elsewhere")
    outputs.remove([Output(TASKS[0], 1, 5, 0)])
    add(outputs, writer, TASKS[2], b"third")
    texts = [read(outputs, task) for task in (*TASKS, OTHER)]
    assert texts == [b"", b"second", b"third", b"elsewhere"]


def test_two_that_take_records_out_do_not_undo_each_other(outputs, writer, monkeypatch):
    for task in TASKS:
        add(outputs, writer, task, task.encode())
    writer.close()
    lock, other = fcntl.flock, Outputs(os.path.dirname(outputs.root))

    def after_another(handle, how):
        monkeypatch.undo()
        other.remove([Output(TASKS[0], 1, 0, 0)])
        lock(handle, how)

    monkeypatch.setattr(fcntl, "flock", after_another)
    assert outputs.remove([Output(TASKS[1], 1, 0, 0)]) == [], "another time"
    assert [read(outputs, task) for task in TASKS] == [b"", *(t.encode() for t in TASKS[1:])]


def test_a_writer_waits_for_nobody(outputs, writer):
    add(outputs, writer, TASKS[0], b"first")
    writer.close()
    with open(pack_of(outputs, TASKS[0]), "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError):
            add(outputs, writer, TASKS[1], b"second")
    add(outputs, writer, TASKS[2], b"third")
    assert [read(outputs, task) for task in TASKS] == [b"first", b"", b"third"]


def test_records_taken_out_just_as_the_writer_comes_take_nothing_along(
    outputs, writer, monkeypatch
):
    for task in TASKS[:2]:
        add(outputs, writer, task, task.encode())
    writer.close()
    lock = fcntl.flock

    def after_another(handle, how):
        monkeypatch.undo()
        outputs.remove([Output(TASKS[0], 1, 0, 0)])
        lock(handle, how)

    monkeypatch.setattr(fcntl, "flock", after_another)
    add(outputs, writer, TASKS[2], b"third")
    assert [read(outputs, task) for task in TASKS] == [b"", TASKS[1].encode(), b"third"]


# As a file


def test_a_program_gets_a_file(outputs, writer):
    add(outputs, writer, TASKS[0], b"first\n")
    path = outputs.as_file(TASKS[0], 1)
    assert Path(path).read_bytes() == b"first\n" and os.stat(path).st_mode & 0o777 == 0o600
    Path(path).write_bytes(b"longer than what was packed")
    assert outputs.as_file(TASKS[0], 1) == path
    assert read(outputs, TASKS[0]) == b"longer than what was packed", "a file is preferred"
    assert sorted(os.listdir(os.path.dirname(path))) == [f"{TASKS[0]}.1.log", "7.ab.pack"]
    assert outputs.as_file(TASKS[1], 1) == outputs.path(TASKS[1], 1), "if there were one"
