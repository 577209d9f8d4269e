"""One store under two names: one supervisor, and no second command while the first one is alive."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess

import pytest

from hypervisor.resources.process_table import read_process, snapshot
from tests.torture.fleet import DEADLINE, PROGRAM, kill, lives, wait_for

# The first attempt stays; a later one reports whether the first was still alive.
COMMAND = """
if mkdir first 2>/dev/null; then
    echo $$ > first/new && mv first/new first/pid
    sleep 300
elif grep -qs "^State:.[^ZX]" /proc/$(cat first/pid)/status; then
    echo met >> later
else
    echo alone >> later
fi
"""
SCRUBBED = f"exec env -i PATH=$PATH sh -c '{COMMAND}'"  # no variable shows to whom it belongs


class Named:
    """The project under another name: the command line differs, the store does not."""

    def __init__(self, project, how: str) -> None:
        self.project, self.folder, self.env = project, project.folder, dict(project.env)
        if how == "a linked folder":
            self.folder = project.folder.parent / "linked"
            self.folder.symlink_to(project.folder, target_is_directory=True)
            self.env["HYPERVISOR_STORE"] = str(self.folder / ".hypervisor" / "store.db")
        elif how == "another runtime folder":
            other = project.folder.parent / "other-run"
            other.mkdir(mode=0o700)
            self.env["XDG_RUNTIME_DIR"] = str(other)
        elif how == "no runtime folder":
            del self.env["XDG_RUNTIME_DIR"]

    def hv(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*PROGRAM, *words],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )


OTHER_NAMES = ("a linked folder", "another runtime folder", "no runtime folder")


def start(project, command=COMMAND):
    """Run it in the background until its process is there; returns its identity."""
    words = ("--detach", "--workers", "1", "--name", "twice", "--", "sh", "-c", command, "{}")
    assert project.run(*words, items=["item"]).code == 0
    first = project.folder / "first" / "pid"
    wait_for(first.exists, "the command", story=project.story)
    found = read_process(int(first.read_text()))
    assert found is not None
    return found.pid, found.start


def kill_all_but_the_command(project):
    """The supervisor first, so that no process adopts what the others leave."""
    all = snapshot()
    for pid in (*project.supervisors(), *project.workers()):
        kill(all[pid])
    ours = lambda: [*project.supervisors(), *project.workers()]  # noqa: E731
    wait_for(lambda: not ours(), "the end of supervisor and worker")


def finish(project, other):
    """Run what is left, by the other name."""
    listed = project.folder / "listed"
    listed.write_text("item\n")
    done = other.hv(
        "run", "--name", "twice", "--items", str(listed), "--", "sh", "-c", COMMAND, "{}"
    )
    assert done.returncode == 0, (done, project.story())
    return (project.folder / "later").read_text()


@pytest.mark.parametrize("how", OTHER_NAMES)
@pytest.mark.parametrize("command", [COMMAND, SCRUBBED], ids=["plain", "scrubbed"])
def test_what_is_left_of_a_dead_worker_ends_before_its_task_is_handed_out(project, how, command):
    pid, started = start(project, command)
    kill_all_but_the_command(project)
    assert lives(pid, started)
    assert finish(project, Named(project, how)) == "alone\n"
    assert not lives(pid, started)
    project.wait_until_left()


@pytest.mark.parametrize("command", [COMMAND, SCRUBBED], ids=["plain", "scrubbed"])
def test_so_it_is_when_the_runtime_folder_is_gone(project, command):
    """A logout may take it away."""
    if command is SCRUBBED and not _groups_can_be_owned():
        pytest.skip("without its environment it is found by its cgroup, and none can be owned here")
    pid, started = start(project, command)
    kill_all_but_the_command(project)
    with project.open() as hv:
        shutil.rmtree(hv.launcher.places.runtime)
    assert finish(project, Named(project, "")) == "alone\n"
    assert not lives(pid, started)
    project.wait_until_left()


@pytest.mark.parametrize("how", OTHER_NAMES)
def test_there_is_one_supervisor_whatever_the_store_is_called(project, how):
    start(project)
    (supervisor,) = project.supervisors()
    other = Named(project, how)
    (project.folder / "listed").write_text("item\n")
    more = other.hv("run", "--detach", "--name", "more", "--items", "listed", "--", "true")
    assert more.returncode == 0, more
    status = other.hv("status", "--json")
    assert f'"supervisor": {supervisor}' in status.stdout, status
    assert project.supervisors() == [supervisor]


def test_a_copy_of_a_store_is_another_store(project):
    """It has a supervisor of its own, and its workers are not taken for those of the first."""
    pid, started = start(project)
    copy = Named(project, "")
    copy.folder = project.folder.parent / "copy"
    shutil.copytree(project.folder, copy.folder)
    (copy.folder / "listed").write_text("one\n")
    words = ("--name", "copied", "--items", "listed", "--", "touch", "ran-{}")
    try:
        done = copy.hv("run", *words)
        assert done.returncode == 0, done
        assert (copy.folder / "ran-one").exists()
        assert lives(pid, started)
    finally:
        copy.hv("stop", "--all")


def _groups_can_be_owned() -> bool:
    from hypervisor.resources.cgroup import Group

    made = Group.make(f"hv-test-{os.getpid()}")
    if made is not None:
        made.remove()
    return made is not None


def test_a_new_store_at_the_same_path_waits_for_no_other(project):
    """The supervisor of the one that was deleted may be there for some seconds more."""
    start(project)
    all, (old,) = snapshot(), project.supervisors()
    kill(all[old], signal.SIGSTOP)
    shutil.rmtree(project.folder / ".hypervisor")
    done = project.run("--workers", "1", "--", "touch", "ran-{}", items=["one"], seconds=60)
    assert done.code == 0, done
    assert (project.folder / "ran-one").exists()
    assert lives(old, all[old].start)
