"""Task files: a change never loses what their owner writes at the same time, not even after a
kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hypervisor.core import atomic_replace
from hypervisor.core.atomic_replace import Replacement
from hypervisor.core.errors import InvalidInput
from hypervisor.inputs.task_files.change import Lock, spare_path
from hypervisor.inputs.task_files.files import TaskFiles
from tests.support.taskfiles import add, names, replace


class TestTheOwner:
    def test_a_concurrent_replacement_is_merged(self, files, path, folder):
        """At every moment at which a process could lose the race."""
        saves = iter([b"v1", b"v2", b"v3"])

        def edit(data):
            if (save := next(saves, None)) is not None:
                replace(path, save)
            return data + b"+"

        assert files.change(str(path), edit)
        assert path.read_bytes() == b"v3+" and names(folder) == ["task.md"]

    @pytest.mark.parametrize("way", ["replace", "in place"])
    def test_who_writes_just_before_the_swap_is_merged(self, files, path, folder, way, monkeypatch):
        write = replace if way == "replace" else Path.write_bytes
        real = Replacement._exchange
        saves = iter([b"v1", None, b"v2"])  # None: as it is put back

        def late(self, expected=None):
            if (save := next(saves, None)) is not None:
                write(path, save)
            real(self, expected)

        monkeypatch.setattr(Replacement, "_exchange", late)
        assert files.change(str(path), add(b"+"))
        assert path.read_bytes() == b"v2+" and names(folder) == ["task.md"]

    def test_who_writes_again_on_top_keeps_both(self, files, path, folder, monkeypatch):
        real, saves = Replacement._exchange, iter([b"v1", b"v2"])

        def late(self, expected=None):
            if (save := next(saves, None)) is not None:
                replace(path, save)
            real(self, expected)

        monkeypatch.setattr(Replacement, "_exchange", late)
        assert files.change(str(path), add(b"+"))
        assert [(folder / name).read_bytes() for name in names(folder)] == [b"v2+", b"v1"]
        assert names(folder)[1].startswith("task.md.kept-")

    def test_another_project_with_locks_of_its_own_is_merged(self, files, path, folder, tmp_path):
        others = TaskFiles(str(tmp_path / "other"))
        path.write_bytes(b"")

        def write(by, letter):
            for _ in range(40):
                by.change(str(path), add(letter))

        crew = [
            threading.Thread(target=write, args=each) for each in ((files, b"a"), (others, b"b"))
        ]
        for each in crew:
            each.start()
        for each in crew:
            each.join(180)
        kept = b"".join((folder / name).read_bytes() for name in names(folder) if "kept" in name)
        assert sorted(path.read_bytes()) == sorted(b"a" * 40 + b"b" * 40) or kept
        assert not any(name.startswith(".hv") for name in names(folder))

    def test_who_is_in_the_middle_of_writing_is_waited_for(self, files, path):
        with open(path, "r+b", buffering=0) as owner:
            owner.truncate(0)
            thread = threading.Thread(target=files.change, args=(str(path), add(b"+")))
            thread.start()
            owner.write(b"half")
            time.sleep(0.05)
            assert thread.is_alive() and path.read_bytes() == b"half"
            owner.write(b" and half")
        thread.join(180)
        assert path.read_bytes() == b"half and half+"

    def test_who_never_ends_writing_is_left_alone(self, files, path, folder, monkeypatch):
        monkeypatch.setattr(atomic_replace, "PATIENCE", 0.05)
        with open(path, "ab"), pytest.raises(InvalidInput, match="keeps writing to"):
            files.change(str(path), add(b"+"))
        assert path.read_bytes() == b"old" and names(folder) == ["task.md"]

    def test_an_editor_that_opened_it_before_the_swap_loses_nothing(
        self, files, path, folder, monkeypatch
    ):
        """Their open file is swapped out and comes back, including what they write later."""
        monkeypatch.setattr(atomic_replace, "PATIENCE", 0.05)
        real = Replacement._exchange
        opened: list[int] = []

        def late(self, expected=None):
            if not opened:
                opened.append(os.open(path, os.O_WRONLY | os.O_APPEND))
            real(self, expected)

        monkeypatch.setattr(Replacement, "_exchange", late)
        with pytest.raises(InvalidInput, match="keeps writing to"):
            files.change(str(path), add(b"+"))
        os.write(opened[0], b" theirs")
        os.close(opened[0])
        assert path.read_bytes() == b"old theirs" and names(folder) == ["task.md"]
        assert files.change(str(path), add(b"+")) and path.read_bytes() == b"old theirs+"

    @pytest.mark.parametrize("target", ["none.md", "other.md"])
    def test_who_puts_a_link_there_keeps_it(self, files, path, folder, target, monkeypatch):
        real = Replacement._exchange
        (folder / "other.md").write_bytes(b"other")

        def late(self, expected=None):
            if not path.is_symlink() and path.read_bytes() == b"old":
                os.symlink(target, folder / "link")
                os.rename(folder / "link", path)
            real(self, expected)

        monkeypatch.setattr(Replacement, "_exchange", late)
        with pytest.raises(InvalidInput):
            files.change(str(path), add(b"+"))
        assert os.readlink(path) == target and names(folder) == ["other.md", "task.md"]
        assert (folder / "other.md").read_bytes() == b"other"

    def test_who_deletes_it_is_obeyed(self, files, path, folder):
        def edit(data):
            path.unlink(missing_ok=True)
            return data + b"+"

        with pytest.raises(InvalidInput):
            files.change(str(path), edit)
        assert names(folder) == []

    @pytest.mark.parametrize("links", [True, False])
    def test_without_exchange_it_is_renamed(self, files, path, folder, monkeypatch, links):
        monkeypatch.setattr(atomic_replace, "EXCHANGE", 1 << 30)  # no kernel knows it: EINVAL
        if not links:
            monkeypatch.setattr(os, "link", refuse)
        saves = iter([b"v1"])

        def edit(data):
            if (save := next(saves, None)) is not None:
                replace(path, save)
            return data + b"+"

        assert files.change(str(path), edit)
        assert path.read_bytes() == b"v1+" and names(folder) == ["task.md"]

    def test_without_exchange_who_writes_just_before_is_merged(
        self, files, path, folder, monkeypatch
    ):
        monkeypatch.setattr(atomic_replace, "EXCHANGE", 1 << 30)
        real, saves = Replacement._exchange, iter([b"v1"])

        def late(self, expected=None):
            if (save := next(saves, None)) is not None:
                replace(path, save)
            real(self, expected)

        monkeypatch.setattr(Replacement, "_exchange", late)
        assert files.change(str(path), add(b"+"))
        assert path.read_bytes() == b"v1+" and names(folder) == ["task.md"]


def refuse(*args, **named):
    raise PermissionError(1, "no links here")


STEPPING = """
import os, signal, sys
from hypervisor.core import atomic_replace
from hypervisor.core.atomic_replace import Replacement
from hypervisor.inputs.task_files.files import TaskFiles
path, locks, stop, save, exchange = *sys.argv[1:3], int(sys.argv[3]), *sys.argv[4:]
if exchange == "link":
    atomic_replace.EXCHANGE = 1 << 30  # no kernel knows it: EINVAL
calls, rename = 0, os.rename
def step(name, real):
    def call(*args, **named):
        global calls
        calls += 1
        if calls == stop:
            os.kill(os.getpid(), signal.SIGKILL)
        if name == "_exchange" and save == "save" and not os.path.exists(path + ".other"):
            with open(path + ".other", "wb") as file: file.write(b"theirs")
            os.link(path + ".other", path + ".x")
            rename(path + ".x", path)
        return real(*args, **named)
    return call
for module, names in (
    (os, "open write fsync fchmod rename unlink ftruncate pwrite close".split()),
    (Replacement, "_exchange _hash".split()),
):
    for name in names:
        setattr(module, name, step(name, getattr(module, name)))
other = os.path.join(os.path.dirname(path), "second.md")
TaskFiles(locks).change_all([(path, lambda data: data + b"+"), (other, lambda data: data + b"+")])
print(calls)
"""


@pytest.mark.parametrize("exchange", ["exchange", "link"])
@pytest.mark.parametrize("save", ["quiet", "save"])
def test_killed_at_every_step_nothing_is_lost_or_left(path, folder, tmp_path, save, exchange):
    """The owner saves just before the swap, or not; the next change finds a consistent state."""
    stop, ended = 0, False
    while not ended:
        stop += 1
        for name in names(folder):
            os.unlink(folder / name)
        path.write_bytes(b"old")
        second = folder / "second.md"
        second.write_bytes(b"two")
        command = [sys.executable, "-c", STEPPING, str(path), str(tmp_path / "locks")]
        command += [str(stop), save, exchange]
        run = subprocess.run(command, capture_output=True, timeout=180)
        ended = run.returncode == 0
        assert ended or run.returncode == -signal.SIGKILL, run.stderr
        saved = (folder / "task.md.other").exists()
        assert path.read_bytes() in (b"old", b"old+", b"theirs", b"theirs+")
        assert second.read_bytes() in (b"two", b"two+")
        for each in (path, second):
            TaskFiles(str(tmp_path / "locks")).change(str(each), add(b"!"))
        wanted = {b"theirs!", b"theirs+!"} if saved else {b"old!", b"old+!"}
        assert path.read_bytes() in wanted, stop
        assert second.read_bytes() in (b"two!", b"two+!")
        left = ["second.md", "task.md", *(["task.md.other"] if saved else [])]
        assert names(folder) == left, stop
    assert stop > 25


def test_an_unknown_spare_is_kept(files, path, folder, tmp_path):
    """As after a power cut that lost the note about it."""
    spare = spare_path(str(path), Lock(0, str(tmp_path / "locks" / "here")))
    Path(spare).write_bytes(b"whose?")
    assert files.change(str(path), add(b"+"))
    kept, task = sorted(names(folder), key=lambda name: name == "task.md")
    assert path.read_bytes() == b"old+" and task == "task.md"
    assert kept.startswith("task.md.kept-") and (folder / kept).read_bytes() == b"whose?"


@pytest.mark.parametrize("left", [b"", b"old"])
def test_a_spare_with_nothing_of_its_own_goes(files, path, folder, tmp_path, left):
    spare = spare_path(str(path), Lock(0, str(tmp_path / "locks" / "here")))
    Path(spare).write_bytes(left)
    assert files.change(str(path), add(b"+"))
    assert (path.read_bytes(), names(folder)) == (b"old+", ["task.md"])
