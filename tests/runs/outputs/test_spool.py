"""The spool: every command gets exactly its own output, short or long."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess

import pytest

from hypervisor.core.errors import InvalidInput
from hypervisor.runs.outputs.files import Outputs
from hypervisor.runs.outputs.spool import MAX_PACKED_LENGTH, Spool

FIRST, SECOND = "1vwk5n0003n3", "1vwk5n0003n4"
WORKER = "worker-7@host/7.ab"


@pytest.fixture
def spool(tmp_path):
    made = Spool(str(tmp_path), WORKER)
    yield made
    made.close()


@pytest.fixture
def outputs(tmp_path):
    return Outputs(str(tmp_path))


def run(spool, task, text, attempt=1):
    with open(spool.prepare(task, attempt), "ab") as file:
        file.write(text)
    return spool.ended(task, attempt)


def read(outputs, task, attempt=1):
    return outputs.read(task, attempt, 0, 1 << 30)


def has_file(outputs, task, attempt=1):
    return os.path.exists(outputs.path(task, attempt))


@pytest.mark.parametrize("text", [b"", b"x", b"a\0b\xff\n", b"y" * MAX_PACKED_LENGTH])
def test_short_ones_need_no_file(spool, outputs, text):
    assert run(spool, FIRST, text) == len(text)
    spool.takes_long(FIRST, 1)  # too late to have an effect
    assert run(spool, SECOND, b"other") == 5
    assert read(outputs, FIRST) == text and outputs.size(FIRST, 1) == len(text)
    assert read(outputs, SECOND) == b"other"
    assert not has_file(outputs, FIRST) and not has_file(outputs, SECOND)


def test_much_gets_a_file(spool, outputs):
    much = b"z" * (MAX_PACKED_LENGTH + 1)
    assert run(spool, FIRST, much) == len(much)
    assert run(spool, SECOND, b"short") == 5
    assert has_file(outputs, FIRST) and read(outputs, FIRST) == much
    assert not has_file(outputs, SECOND) and read(outputs, SECOND) == b"short"


def test_one_that_takes_long_can_be_read_while_it_writes(spool, outputs):
    with open(spool.prepare(FIRST, 1), "ab", buffering=0) as file:
        file.write(b"early ")
        assert outputs.size(FIRST, 1) is None
        spool.takes_long(FIRST, 1)
        assert read(outputs, FIRST) == b"early "
        file.write(b"late")
        assert read(outputs, FIRST) == b"early late"
    assert spool.ended(FIRST, 1) == 10
    spool.takes_long(FIRST, 1)  # too late to have an effect
    assert run(spool, SECOND, b"next") == 4
    assert read(outputs, FIRST) == b"early late" and read(outputs, SECOND) == b"next"


def test_nothing_gets_into_the_output_of_another(spool, outputs):
    """A process of the first command still has its output open, and writes while the next one
    runs."""
    with open(spool.prepare(FIRST, 1), "ab", buffering=0) as left:
        left.write(b"mine, ")
        assert spool.ended(FIRST, 1) == 6
        path = spool.prepare(SECOND, 1)
        left.write(b"and later")
        with open(path, "ab") as file:
            file.write(b"other")
        assert spool.ended(SECOND, 1) == 5
    assert read(outputs, FIRST) == b"mine, and later" and read(outputs, SECOND) == b"other"
    assert has_file(outputs, FIRST) and not has_file(outputs, SECOND)


def test_a_process_that_was_killed_has_let_go(spool, outputs):
    for number in range(20):
        with open(spool.prepare(FIRST, number), "ab") as file:
            child = subprocess.Popen(["sh", "-c", "echo x; kill -9 $$"], stdout=file)
        assert child.wait() == -signal.SIGKILL
        assert spool.ended(FIRST, number) == 2
        assert not has_file(outputs, FIRST, number)


def test_where_there_are_no_leases_each_has_its_file(spool, outputs, monkeypatch):
    def refuse(*_):
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(fcntl, "fcntl", refuse)
    run(spool, FIRST, b"one")
    run(spool, SECOND, b"")
    assert read(outputs, FIRST) == b"one" and outputs.size(SECOND, 1) == 0
    assert has_file(outputs, FIRST) and has_file(outputs, SECOND)


def test_the_word_about_a_lease_ends_nobody(spool):
    os.kill(os.getpid(), signal.SIGIO)


def test_without_room_for_a_copy_it_becomes_a_file(spool, outputs, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("hypervisor.runs.outputs.archive.Writer.append", full)
    assert run(spool, FIRST, b"one") == 3
    monkeypatch.undo()
    assert run(spool, SECOND, b"two") == 3
    assert has_file(outputs, FIRST) and read(outputs, FIRST) == b"one"
    assert read(outputs, SECOND) == b"two"


def test_without_room_for_anything_the_end_of_the_command_still_counts(spool, outputs, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    with open(spool.prepare(FIRST, 1), "ab", buffering=0) as left:
        with monkeypatch.context() as patch:
            patch.setattr("hypervisor.runs.outputs.archive.Writer.append", full)
            patch.setattr(os, "rename", full)
            left.write(b"one")
            spool.takes_long(FIRST, 1)
            assert spool.ended(FIRST, 1) is None and outputs.size(FIRST, 1) is None
        spool.prepare(SECOND, 1)
        left.write(b"later")
        assert run(spool, SECOND, b"two") == 3
    assert read(outputs, SECOND) == b"two"


def test_a_spool_that_cannot_be_emptied_is_given_away(spool, outputs, monkeypatch):
    opened = os.open

    def no_more(path, flags, *mode):
        if flags & os.O_TRUNC and flags & os.O_WRONLY:
            raise OSError(24, "Too many open files")
        return opened(path, flags, *mode)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", no_more)
        assert run(spool, FIRST, b"one") == 3, "it has ended, whatever else fails"
    assert run(spool, SECOND, b"two") == 3
    assert read(outputs, FIRST) == b"one" and read(outputs, SECOND) == b"two"
    assert len(list(outputs.all())) == 2, "one that is packed and a file counts once"


def test_an_attempt_whose_end_was_not_reported_keeps_its_output(spool, outputs):
    """It was cancelled, or its claim was lost."""
    with open(spool.prepare(FIRST, 1), "ab") as file:
        file.write(b"one")
    assert run(spool, SECOND, b"two") == 3
    assert read(outputs, FIRST) == b"one" and read(outputs, SECOND) == b"two"


def test_a_spool_that_was_removed_is_created_again(spool, outputs):
    run(spool, FIRST, b"one")
    for folder, _, names in os.walk(outputs.root, topdown=False):
        for name in names:
            os.unlink(os.path.join(folder, name))
        os.rmdir(folder)
    assert run(spool, FIRST, b"again", 2) == 5
    assert read(outputs, FIRST, 2) == b"again"
    path = spool.prepare(FIRST, 3)
    os.unlink(path)
    assert spool.ended(FIRST, 3) is None, "it is gone, and nobody says otherwise"
    assert run(spool, SECOND, b"two") == 3


def test_a_spool_that_cannot_be_made_is_made_the_next_time(spool, outputs, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    os.unlink(spool.prepare(FIRST, 1))
    with monkeypatch.context() as patch:
        patch.setattr(spool, "make_folder", full)
        with pytest.raises(OSError, match="No space"):
            spool.prepare(FIRST, 2)
    assert run(spool, FIRST, b"one", 3) == 3 and read(outputs, FIRST, 3) == b"one"


def test_a_reader_changes_nothing(spool, outputs):
    """A reader does not count as a writer."""
    with open(spool.prepare(FIRST, 1), "rb"):
        assert run(spool, FIRST, b"one") == 3
    assert not has_file(outputs, FIRST)


# After the worker has died


def test_a_worker_that_ends_leaves_no_spool(tmp_path, outputs):
    spool = Spool(str(tmp_path), WORKER)
    run(spool, FIRST, b"one")
    spool.close()
    assert os.listdir(os.path.dirname(outputs.spool_of(WORKER))) == []
    assert read(outputs, FIRST) == b"one"


def test_what_a_killed_worker_s_command_had_printed_is_kept(spool, outputs):
    run(spool, FIRST, b"one")
    with open(spool.prepare(SECOND, 2), "ab") as file:
        file.write(b"the last words")
    outputs.recover(WORKER, (SECOND, 2))
    assert read(outputs, SECOND, 2) == b"the last words"
    assert not os.path.exists(outputs.spool_of(WORKER))
    outputs.recover(WORKER, (SECOND, 2))  # another process recovers it, too
    assert read(outputs, SECOND, 2) == b"the last words"


@pytest.mark.parametrize("running", [None, (SECOND, 1)])
def test_an_empty_spool_goes_with_its_worker(spool, outputs, running):
    spool.prepare(SECOND, 1)
    outputs.recover(WORKER, running)
    assert not os.path.exists(outputs.spool_of(WORKER)) and not has_file(outputs, SECOND)


@pytest.mark.parametrize("worker", ["", "x/..", "a/b\0", "w/.", "w/a b"])
def test_only_workers_have_spools(outputs, worker):
    with pytest.raises(InvalidInput, match="invalid worker id"):
        outputs.spool_of(worker)
