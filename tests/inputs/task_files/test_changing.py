"""Task files: changed atomically, refused where that is not possible, receipts, and many at
once."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hypervisor.core.errors import InvalidInput
from hypervisor.inputs.task_files.change import MAX_SIZE, explaining
from hypervisor.inputs.task_files.files import TaskFiles
from hypervisor.inputs.task_files.receipts_section import receipt_line, receipt_problems
from tests.support.taskfiles import THREE, add, names, replace

ROOT = Path(__file__).parents[3]


class TestChanging:
    def test_replaces_the_content(self, files, path, folder):
        before = os.stat(path).st_ino
        assert files.change(str(path), add(b" new"))
        assert path.read_bytes() == files.read(str(path)) == b"old new"
        assert os.stat(path).st_ino != before and names(folder) == ["task.md"]

    def test_what_is_equal_is_not_written(self, files, path):
        before = os.stat(path)
        assert not files.change(str(path), lambda data: data)
        assert os.stat(path) == before

    def test_an_edit_that_fails_changes_nothing(self, files, path, folder):
        with pytest.raises(ZeroDivisionError):
            files.change(str(path), lambda data: bytes([1 // 0]))
        assert path.read_bytes() == b"old" and names(folder) == ["task.md"]
        assert files.change(str(path), add(b"!"))

    def test_mode_owner_and_attributes_stay(self, files, path):
        os.chmod(path, 0o640)
        if os.geteuid() == 0:
            os.chown(path, 1234, 2345)
        try:
            os.setxattr(path, "user.note", b"mine")
            wanted = {"user.note": b"mine"}
        except OSError:
            wanted = {}
        before = os.stat(path)
        assert files.change(str(path), add(b"!"))
        after = os.stat(path)
        assert stat.S_IMODE(after.st_mode) == 0o640
        assert (after.st_uid, after.st_gid) == (before.st_uid, before.st_gid)
        assert {name: os.getxattr(path, name) for name in os.listxattr(path)} == wanted

    def test_a_link_stays_and_its_target_changes(self, files, path, tmp_path):
        link = tmp_path / "link.md"
        link.symlink_to(path)
        assert files.change(str(link), add(b"!"))
        assert link.is_symlink() and path.read_bytes() == b"old!"
        assert names(tmp_path) == ["link.md", "locks", "tasks"]

    def test_odd_names(self, files, folder):
        for name in (b"\xff\xfe.md", b"n" * 255, "😀 ü\n.md".encode(), b"-", b"$(x)"):
            path = os.fsencode(folder) + b"/" + name
            Path(os.fsdecode(path)).write_bytes(b"1")
            assert files.change(os.fsdecode(path), add(b"2"))
            assert Path(os.fsdecode(path)).read_bytes() == b"12"
        assert len(names(folder)) == 5

    def test_processes_queue_up(self, files, path, tmp_path):
        program = (
            "import sys; from hypervisor.inputs.task_files.files import TaskFiles\n"
            "for n in range(25):\n"
            "    TaskFiles(sys.argv[1]).change(sys.argv[2], lambda data: b'%d' % (int(data) + 1))\n"
        )
        path.write_bytes(b"0")
        command = [sys.executable, "-c", program, str(tmp_path / "locks" / "here"), str(path)]
        crew = [subprocess.Popen(command) for _ in range(4)]
        assert [each.wait(180) for each in crew] == [0] * 4
        assert path.read_bytes() == b"100"


class TestRefusals:
    def check(self, files, path, match):
        for call in (
            lambda: files.change(str(path), add(b"x")),
            lambda: files.append_receipts(str(path), THREE),
        ):
            with pytest.raises(InvalidInput, match=match):
                call()

    def test_missing(self, files, folder):
        self.check(files, folder / "none.md", "No such file")
        self.check(files, folder / "none" / "none.md", "No such file")
        with pytest.raises(InvalidInput):
            files.read(str(folder / "none.md"))
        assert names(folder) == []

    def test_no_regular_file(self, files, folder):
        os.mkfifo(folder / "pipe")
        (folder / "self").symlink_to(folder / "self")
        self.check(files, folder, "regular")
        self.check(files, folder / "pipe", "regular")
        self.check(files, folder / "self", "symbolic links")
        self.check(files, Path("/dev/null"), "regular")

    def test_write_protected(self, files, path, folder):
        path.chmod(0o444)
        self.check(files, path, "write-protected")
        path.write_bytes(b"## Receipts\n") if os.geteuid() == 0 else None
        self.check(files, path, "write-protected")
        assert names(folder) == ["task.md"]

    def test_too_large(self, files, path):
        os.truncate(path, MAX_SIZE + 1)
        self.check(files, path, "larger")


FULL = """
import errno, os, sys
sys.path.insert(0, sys.argv[3])
from tests.support.taskfiles import THREE, chain
from hypervisor.selftest.small_disk import mount_small
from hypervisor.inputs.task_files.files import TaskFiles
folder, locks = sys.argv[1:3]
why = mount_small(folder, 64 * 1024)
if why:
    print(why); sys.exit(77)
path = os.path.join(folder, "task.md")
files = TaskFiles(locks)
with open(path, "wb") as file:
    file.write(b"x" * 8000 + b"\\n## Receipts\\n")
before = files.read(path)
with open(os.path.join(folder, "filler"), "wb", buffering=0) as file:
    try:
        while True: file.write(b"y" * 4096)
    except OSError: pass
many = chain(*["z" * 400 for _ in range(40)])
for call in (lambda: files.change(path, lambda data: data * 2),
             lambda: files.append_receipts(path, many)):
    try:
        call()
        raise SystemExit("not refused")
    except OSError as error:
        assert error.errno == errno.ENOSPC, error
    assert files.read(path) == before
    assert sorted(os.listdir(folder)) == ["filler", "task.md"]
os.unlink(os.path.join(folder, "filler"))
assert files.append_receipts(path, many)
"""


def test_a_full_disk_leaves_the_file_as_it_was(folder, tmp_path):
    command = [sys.executable, "-c", FULL, str(folder), str(tmp_path / "locks"), str(ROOT)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=180)
    if run.returncode == 77:
        pytest.skip(run.stdout)
    assert run.returncode == 0, run.stderr


class TestReceipts:
    def test_are_appended_in_place(self, files, path):
        assert files.append_receipts(str(path), THREE[:1])
        before = os.stat(path).st_ino
        assert files.append_receipts(str(path), THREE)
        assert not files.append_receipts(str(path), THREE)
        assert os.stat(path).st_ino == before
        lines = "\n".join(receipt_line(each) for each in THREE)
        assert path.read_text() == f"old\n\n## Receipts\n\n{lines}\n"

    def test_above_a_section_of_the_owner(self, files, path):
        files.append_receipts(str(path), THREE[:1])
        with open(path, "a") as file:
            file.write("\n## Mine\n")
        assert files.append_receipts(str(path), THREE)
        assert receipt_problems(path.read_bytes(), THREE) == []
        assert path.read_bytes().endswith(b"\n\n## Mine\n")

    def test_a_torn_line_is_completed_in_place(self, files, path):
        files.append_receipts(str(path), THREE)
        whole, before = path.read_bytes(), os.stat(path).st_ino
        for size in range(len(whole) - 1, len(whole) - 70, -1):
            os.truncate(path, size)
            assert files.append_receipts(str(path), THREE)
            assert path.read_bytes() == whole and os.stat(path).st_ino == before

    def test_a_file_replaced_while_it_was_appended_to_gets_them_again(
        self, files, path, monkeypatch
    ):
        files.append_receipts(str(path), THREE[:1])
        real = os.fsync
        times: list[None] = []

        def late(file):
            times.append(replace(path, b"theirs\n\n## Receipts\n\n") if not times else None)
            real(file)

        monkeypatch.setattr(os, "fsync", late)
        assert files.append_receipts(str(path), THREE)
        assert path.read_bytes().startswith(b"theirs\n") and len(times) == 2
        assert receipt_problems(path.read_bytes(), THREE) == []


def test_errors_that_are_not_about_the_file_stay_what_they_are():
    with pytest.raises(OSError) as caught, explaining("x"):
        raise OSError(errno.EIO, "bad disk")
    assert caught.value.errno == errno.EIO


class TestMany:
    """Files that are changed together: each is handled as if it were alone."""

    @pytest.fixture
    def paths(self, folder):
        made = [folder / f"{number:02}.md" for number in range(40)]
        for number, each in enumerate(made):
            each.write_bytes(b"%d" % number)
        return made

    def test_all_are_changed(self, files, paths, folder):
        before = names(folder)
        outcomes = files.change_all([(str(path), add(b"+")) for path in paths])
        assert outcomes == [True] * len(paths)
        assert [path.read_bytes() for path in paths] == [b"%d+" % n for n in range(len(paths))]
        assert names(folder) == before

    def test_one_that_fails_keeps_no_other(self, files, paths, folder):
        def fail(data):
            raise InvalidInput("no")

        paths[3].unlink()
        edits = [(str(path), add(b"+")) for path in paths]
        edits[5] = (str(paths[5]), fail)
        edits[7] = (str(paths[7]), lambda data: data)
        outcomes = files.change_all(edits)
        assert [type(each) for each in outcomes[:8]] == [
            bool,
            bool,
            bool,
            InvalidInput,
            bool,
            InvalidInput,
            bool,
            bool,
        ]
        assert outcomes[7] is False and outcomes[8:] == [True] * 32
        assert paths[5].read_bytes() == b"5" and paths[6].read_bytes() == b"6+"
        assert len(names(folder)) == len(paths) - 1

    def test_no_place_for_locks_is_reported_for_each_file(self, paths, tmp_path):
        (tmp_path / "no-folder").write_text("in the way")
        files = TaskFiles(str(tmp_path / "no-folder"))
        outcomes = files.change_all([(str(path), add(b"+")) for path in paths])
        assert all(isinstance(each, OSError) for each in outcomes)
        assert paths[3].read_bytes() == b"3"

    def test_the_same_file_twice(self, files, path):
        assert files.change_all([(str(path), add(b"+")), (str(path), add(b"!"))]) == [True, True]
        assert path.read_bytes() == b"old+!"

    def test_a_link_is_followed(self, files, path, tmp_path):
        link = tmp_path / "link.md"
        link.symlink_to(path)
        assert files.change_all([(str(link), add(b"+")), (str(path), add(b"!"))]) == [True, True]
        assert link.is_symlink() and path.read_bytes() == b"old+!"

    def test_a_concurrent_save_is_merged(self, files, paths, folder):
        """The owner saves the first file while the last one is being edited."""
        before = names(folder)
        saved: list[bool] = []

        def late(data):
            if not saved:
                saved.append(True)
                replace(paths[0], b"theirs")
            return data + b"+"

        edits = [(str(path), add(b"+")) for path in paths[:9]] + [(str(paths[9]), late)]
        assert files.change_all(edits) == [True] * 10
        assert paths[0].read_bytes() == b"theirs+" and paths[9].read_bytes() == b"9+"
        assert names(folder) == before

    def test_locked_files_come_last(self, files, paths):
        """No process waits for a lock while it holds one, so there is no deadlock."""
        held, go, order = threading.Event(), threading.Event(), []

        def slow(data):
            held.set()
            assert go.wait(180)
            return data + b"!"

        def noted(number):
            def edit(data):
                order.append(number)
                if number == 9:
                    go.set()
                return data + b"+"

            return edit

        other = threading.Thread(target=files.change, args=(str(paths[0]), slow))
        other.start()
        assert held.wait(180)
        edits = [(str(path), noted(number)) for number, path in enumerate(paths[:10])]
        assert files.change_all(edits) == [True] * 10
        other.join(180)
        assert order[-1] == 0 and paths[0].read_bytes() == b"0!+"
