"""Stored outputs: shortened with a note, readable whatever they contain, and stored nowhere
else."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hypervisor.core.errors import InvalidInput
from hypervisor.runs.outputs.files import PIECE, Outputs
from hypervisor.runs.spec import Output

TASK = "1vwk5n0003n3"


@pytest.fixture
def outputs(tmp_path):
    return Outputs(str(tmp_path / "data"))


def write(outputs, text, attempt=1, task=TASK):
    with open(outputs.prepare(task, attempt), "wb") as file:
        file.write(text)


def read(outputs, attempt=1, task=TASK):
    return outputs.read(task, attempt, 0, 1 << 30)


# Where they are


def test_an_output_is_for_its_owner_only(outputs):
    path = outputs.prepare(TASK, 3)
    assert path == outputs.path(TASK, 3) == os.path.join(outputs.root, TASK[:10], f"{TASK}.3.log")
    for folder in (outputs.root, os.path.dirname(path)):
        assert os.stat(folder).st_mode & 0o777 == 0o700
    assert not os.path.exists(path), "the writer creates it"
    assert outputs.prepare(TASK, 3) == path


def test_the_folder_is_created_again_if_it_was_removed(outputs):
    write(outputs, b"x")
    os.unlink(outputs.path(TASK, 1))
    os.rmdir(os.path.dirname(outputs.path(TASK, 1)))
    os.rmdir(outputs.root)
    write(outputs, b"again")
    assert read(outputs) == b"again"
    assert os.stat(outputs.root).st_mode & 0o777 == 0o700


def test_the_folder_may_be_made_by_another_worker_in_the_meantime(outputs, monkeypatch):
    folder, make = os.path.dirname(outputs.path(TASK, 1)), os.mkdir

    def after_another(path, mode=0o777):
        if path == folder and not os.path.exists(folder):
            os.makedirs(outputs.root, exist_ok=True)
            make(folder)
        make(path, mode)

    with monkeypatch.context() as patch:
        patch.setattr(os, "mkdir", after_another)
        outputs.prepare(TASK, 1)
    assert os.path.isdir(folder)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "a/b", "/etc", "/", "a/../../b", "x\0", "a b", "-", "a.log"]
)
def test_only_ids_are_names_of_outputs(outputs, tmp_path, name):
    outside = tmp_path / "1.log"
    outside.write_text("mine")
    for use in (
        lambda: outputs.path(name, 1),
        lambda: outputs.prepare(name, 1),
        lambda: outputs.size(name, 1),
        lambda: outputs.read(name, 1, 0, 99),
        lambda: outputs.last_line(name, 1),
        lambda: outputs.bound(name, 1, 0),
        lambda: outputs.remove([Output(name, 1, 0, 0)]),
    ):
        with pytest.raises(InvalidInput, match="invalid id"):
            use()
    assert outside.read_text() == "mine" and os.listdir(tmp_path) == ["1.log"]


# Reading


def test_sizes_and_parts(outputs):
    assert outputs.size(TASK, 1) is None and read(outputs) == b""
    write(outputs, b"0123456789")
    assert outputs.size(TASK, 1) == 10
    assert outputs.read(TASK, 1, 3, 4) == b"3456"
    assert outputs.read(TASK, 1, 8, 99) == b"89"
    assert outputs.read(TASK, 1, 99, 5) == b""


@pytest.mark.parametrize(
    "text, line",
    [
        (b"", ""),
        (b"\n\n  \n", ""),
        (b"one\ntwo", "two"),
        (b"one\ntwo\n\n\r\n", "two"),
        (b"10 %\r50 %\r90 %", "90 %"),
        (b"10 %\r50 %\r", "50 %"),
        (b"dos\r\nlines\r\n", "lines"),
        (b"  padded \t\n", "padded"),
        ("grün ✓\n".encode(), "grün ✓"),
        (b"\xff\xfebad\n", "\ufffd\ufffdbad"),
        (b"x" * 5000, "x" * 2000),
        (b"first\n" + b"y" * 1999, "y" * 1999),
    ],
)
def test_the_last_line_is_for_people(outputs, text, line):
    write(outputs, text)
    assert outputs.last_line(TASK, 1) == line


def test_the_last_line_of_nothing_is_empty(outputs):
    assert outputs.last_line(TASK, 1) == ""


@given(st.binary(max_size=3000))
@example("ü".encode() * 1500)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_last_line_is_one_line_whatever_was_written(outputs, text):
    write(outputs, text)
    line = outputs.last_line(TASK, 1)
    assert "\n" not in line and "\r" not in line and line == line.strip()
    assert len(line) <= 2000


# Bounding


def pattern(size):
    """Every eight bytes differ, so that a shift or a repeat would show."""
    return b"".join(b"%07d\n" % n for n in range(size // 8 + 1))[:size]


@pytest.mark.parametrize("keep", [8, 1000, 1001, 70_000])
@pytest.mark.parametrize("more", [PIECE + 1, PIECE + 4096, 3 * PIECE])
def test_a_bound_keeps_head_and_tail_and_says_how_much_was_left_out(outputs, keep, more):
    text = pattern(keep + more)
    write(outputs, text)
    outputs.bound(TASK, 1, keep)
    half = keep // 2
    left_out = len(text) - 2 * half
    note = f"\n… {left_out} bytes left out by Hypervisor …\n".encode()
    assert read(outputs) == text[:half] + note + text[-half:]


def test_a_bound_of_nothing_keeps_the_note(outputs):
    write(outputs, pattern(2 * PIECE))
    outputs.bound(TASK, 1, 0)
    assert read(outputs) == f"\n… {2 * PIECE} bytes left out by Hypervisor …\n".encode()


@pytest.mark.parametrize("size", [0, 10, 1000, 1000 + PIECE])
def test_what_is_short_enough_stays_as_it_is(outputs, size):
    text = pattern(size)
    write(outputs, text)
    outputs.bound(TASK, 1, 1000)
    assert read(outputs) == text


def test_bounding_twice_changes_nothing_more(outputs):
    write(outputs, pattern(3 * PIECE))
    outputs.bound(TASK, 1, 1000)
    once = read(outputs)
    outputs.bound(TASK, 1, 1000)
    assert read(outputs) == once


def test_bounding_what_is_not_there_is_not_an_error(outputs):
    outputs.bound(TASK, 1, 10)
    assert outputs.size(TASK, 1) is None


def test_a_command_that_still_writes_continues_at_the_end(outputs):
    """It has the file open for appending; what it prints after the output was shortened is not
    lost."""
    with open(outputs.prepare(TASK, 1), "ab", buffering=0) as file:
        file.write(pattern(2 * PIECE))
        outputs.bound(TASK, 1, 100)
        file.write(b"last words\n")
    assert read(outputs).endswith(b"\nlast words\n")
    assert outputs.last_line(TASK, 1) == "last words"


# Listing and removing


def test_all_outputs_with_their_age(outputs):
    write(outputs, b"abc", 1)
    write(outputs, b"de", 12)
    write(outputs, b"f", 1, "other0000000")
    for path in (outputs.path(TASK, 1), outputs.path(TASK, 12), outputs.path("other0000000", 1)):
        os.utime(path, (1_000, 1_000.5))
    assert sorted(outputs.all()) == [
        Output(TASK, 1, 3, 1_000_500),
        Output(TASK, 12, 2, 1_000_500),
        Output("other0000000", 1, 1, 1_000_500),
    ]


def test_there_may_be_no_folder_yet(outputs):
    assert list(outputs.all()) == []


def test_only_outputs_are_listed(outputs, tmp_path):
    write(outputs, b"x")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "1.log").write_text("mine")
    os.symlink(tmp_path / "elsewhere", os.path.join(outputs.root, "linked000000"))
    folder = os.path.dirname(outputs.path(TASK, 1))
    for name in ("x.log", "2.txt", "-3.log", "2.log.new", ".log"):
        with open(os.path.join(folder, name), "w"):
            pass
    with open(os.path.join(outputs.root, "1.log"), "w"):
        pass
    assert [(o.task, o.attempt) for o in outputs.all()] == [(TASK, 1)]


def test_removing_tells_what_is_gone(outputs):
    write(outputs, b"abc", 1)
    write(outputs, b"de", 2)
    first, second = sorted(outputs.all())
    assert outputs.remove([first]) == [first]
    assert outputs.size(TASK, 1) is None and outputs.size(TASK, 2) == 2
    assert outputs.remove([second]) == [second]
    assert os.listdir(outputs.root) == [], "the last one takes its folder along"


def test_what_cannot_be_removed_is_not_told_to_be_gone(outputs):
    os.makedirs(outputs.prepare(TASK, 1))
    assert outputs.remove([Output(TASK, 1, 0, 0)]) == []


def test_removing_a_link_leaves_what_it_leads_to(outputs, tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("mine")
    os.symlink(precious, outputs.prepare(TASK, 1))
    outputs.remove([Output(TASK, 1, 0, 0)])
    assert precious.read_text() == "mine" and not os.path.lexists(outputs.path(TASK, 1))


def test_the_room_on_the_disk_is_told_even_before_there_is_a_folder(outputs, tmp_path):
    assert outputs.room() > 0
    write(outputs, b"x")
    assert 0 < outputs.room() < 1 << 62
