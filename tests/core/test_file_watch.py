"""A watch becomes readable when a file changes, and only then."""

from __future__ import annotations

import select

import pytest

from hypervisor.core.file_watch import FileWatch


def is_readable(watch: FileWatch) -> bool:
    return bool(select.select([watch], [], [], 0)[0])


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "a folder\nwith ünusual \udce4 name"
    path.mkdir()
    return path


def test_files_in_a_folder(folder):
    watch = FileWatch(str(folder))
    assert not is_readable(watch)
    (folder / "new").touch()
    assert is_readable(watch)
    watch.clear()
    assert not is_readable(watch)
    (folder / "new").read_text()
    assert not is_readable(watch), "reading changes nothing"
    (folder / "new").write_text("x")
    assert is_readable(watch)
    watch.close()


def test_one_file(folder):
    path = folder / "file"
    path.touch()
    watch = FileWatch(str(path))
    (folder / "another").write_text("x")
    assert not is_readable(watch)
    path.write_text("x")
    assert is_readable(watch)
    watch.close()


def test_thousands_of_changes_are_cleared_at_once(folder):
    watch = FileWatch(str(folder))
    for number in range(5_000):
        (folder / f"a-rather-long-name-{number:0100}").touch()
    assert is_readable(watch)
    watch.clear()
    assert not is_readable(watch)
    watch.close()


def test_a_missing_file_is_an_error(folder):
    with pytest.raises(FileNotFoundError, match="missing"):
        FileWatch(str(folder / "missing"))
