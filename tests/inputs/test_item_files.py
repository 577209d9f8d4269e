"""Whether the file of an item has changed since an attempt left it."""

from __future__ import annotations

import os

import pytest

from hypervisor.inputs import item_files
from hypervisor.inputs.item_files import FileState, file_state, is_changed, path_of_item

LATER = 1 << 62


def known_state(path):
    state = file_state(str(path))
    assert state is not None
    return state


@pytest.fixture
def path(tmp_path):
    made = tmp_path / "item"
    made.write_text("content")
    os.utime(made, ns=(5, 1_000_000_005))
    return made


def test_the_state_of_a_file(path):
    state = known_state(path)
    assert state[:2] == (7, 1_000_000_005) and len(state.digest) == 32
    assert not is_changed(str(path), [state], 0)


def test_a_touched_file_is_the_same_and_an_edited_one_is_not(path):
    state = known_state(path)
    os.utime(path)
    assert not is_changed(str(path), [state], 0)
    path.write_text("CONTENT")
    assert is_changed(str(path), [state], LATER)
    path.write_text("content and more")
    assert is_changed(str(path), [state], LATER)


def test_any_of_several_states_will_do(path):
    first = known_state(path)
    path.write_text("another")
    second = known_state(path)
    assert is_changed(str(path), [first], 0) and not is_changed(str(path), [first, second], 0)


def test_of_a_large_file_only_size_and_time_are_compared(path, monkeypatch):
    monkeypatch.setattr(item_files, "MAX_DIGESTED_SIZE", 6)
    state = known_state(path)
    assert state == FileState(7, 1_000_000_005, "")
    assert not is_changed(str(path), [state], 0)
    os.utime(path)
    assert is_changed(str(path), [state], 0)


def test_without_a_record_the_time_of_the_file_decides(path):
    changed_at = os.stat(path).st_ctime_ns // 1_000_000
    assert not is_changed(str(path), [], changed_at)
    assert is_changed(str(path), [], changed_at - 1)


def test_what_was_done_before_files_were_recorded_stays_done(path):
    assert not is_changed(str(path), [FileState(-1, 0)], 0)


def test_what_is_not_a_file_cannot_have_changed(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    os.symlink("nowhere", tmp_path / "dangling")
    for name in ("", "pipe", "dangling", "missing", "x" * 5_000, "a\0b"):
        where = os.path.join(tmp_path, name)
        assert file_state(where) is None and not is_changed(where, [FileState(1, 1)], 0)


def test_a_link_stands_for_the_file_behind_it(path):
    link = path.parent / "link"
    link.symlink_to(path)
    state = file_state(str(link))
    path.write_text("changed")
    assert state and is_changed(str(link), [state], 0)


def test_which_items_are_paths():
    assert path_of_item({"item": "a/b"}, "/x") == "/x/a/b"
    assert path_of_item({"item": "/a"}, "/x") == "/a"
    assert path_of_item({"item": "<1@x>", "columns": {"mailbox": "in"}}, "/x") is None
    assert path_of_item({"item": "?", "item_bytes": "/w=="}, "/x") == "/x/\udcff"


@pytest.mark.parametrize("data", [None, {}, [], {"item": 5}])
def test_other_data_names_no_path(data):
    assert path_of_item(data, "/x") is None
