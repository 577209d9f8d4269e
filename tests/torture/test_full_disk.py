"""Real runs on full disks: what cannot be stored is reported, and written once there is room."""

from __future__ import annotations

import json
import time

import pytest

from hypervisor.selftest.small_disk import fill
from tests.torture.fleet import wait_for
from tests.torture.private import small_disk

TASK = "---\nid: t{number}\nstatus: todo\n---\n\nText.\n"
SIZE = 1 << 20


@pytest.fixture
def tasks(project):
    """Task files on a disk of their own."""
    with small_disk(project.folder / "tasks", SIZE) as folder:
        for number in range(5):
            (folder / f"t{number}.md").write_text(TASK.format(number=number))
        yield folder


def _statuses(folder):
    return {path.read_text().split("status: ")[1].split()[0] for path in folder.glob("*.md")}


def _sync(project, *options):
    return project.ended(project.start("receipt", "sync", "b", *options))


def test_task_files_that_cannot_be_written_make_the_run_unsuccessful(project, tasks):
    fill(str(tasks / "ballast"))
    run = ("--name", "b", "--items", "tasks", "--write-back", "status", "--", "true")
    ended = project.run(*run)
    assert ended.code == 9, ended
    assert "5 task files could not be written" in ended.out, ended
    assert "No space left on device" in ended.out and "hv receipt sync b" in ended.out, ended
    assert project.states() == {"done": 5} and _statuses(tasks) == {"todo"}

    full = _sync(project)
    assert full.code == 9, full
    assert "0 files written" in full.out and "5 task files could not be written" in full.err, full
    assert _statuses(tasks) == {"todo"}

    (tasks / "ballast").unlink()
    assert json.loads(_sync(project, "--json").out) == {"files": 5, "unwritten": 0}
    assert _statuses(tasks) == {"done"}
    again = _sync(project)
    assert (again.code, again.out) == (0, "0 files written\n")
    assert project.run(*run).code == 0


def test_a_file_that_was_written_in_the_end_is_not_a_failure(project, tasks):
    """The disk is full when the attempt begins and has room when it ends."""
    fill(str(tasks / "ballast"))
    ended = project.run(
        "--name",
        "b",
        "--items",
        "tasks",
        "--write-back",
        "status",
        "--",
        "sh",
        "-c",
        "rm -f tasks/ballast",
    )
    assert ended.code == 0, ended
    assert _statuses(tasks) == {"done"} and "could not be written" not in ended.out


@pytest.fixture
def small(project):
    """The project's store on a disk of its own."""
    data = project.folder / ".hypervisor"
    kept = {path.name: path.read_bytes() for path in data.iterdir()}
    with small_disk(data, 6 << 20) as folder:
        for name, content in kept.items():
            (folder / name).write_bytes(content)
        yield folder


HOLD = 'echo "$1" >> ../begun; until [ -e "../go$1" ]; do sleep 0.05; done'


def _said(project, kind="out"):
    return (project.folder / f"client0.{kind}").read_text()


def _noted(project, text):
    messages = [event.data["message"] for event in project.events("trouble")]
    return any("no space left" in message and text in message for message in messages)


@pytest.mark.parametrize("quiet", [False, True], ids=["", "quiet"])
def test_a_run_waits_for_room_and_says_so(project, small, tmp_path, quiet):
    begun = tmp_path / "begun"
    options = ("-q",) if quiet else ()
    client = project.start(
        "run",
        *options,
        "--name",
        "b",
        "--workers",
        "2",
        "--",
        "sh",
        "-c",
        HOLD,
        "sh",
        items=range(40),
    )
    wait_for(lambda: begun.exists() and len(begun.read_text().split()) == 2, "two attempts")
    fill(str(small / "ballast"))
    kind = "err" if quiet else "out"
    wait_for(lambda: "no space left" in _said(project, kind), "its word", story=project.story)
    status = project.ended(project.start("status"))
    assert status.code == 0 and "no space left" in status.out and "safe" not in status.out, status
    for number in range(40):
        (tmp_path / f"go{number}").touch()
    asked = time.monotonic()
    wait_for(lambda: time.monotonic() > asked + 4, "a while")
    assert client.poll() is None
    assert len(begun.read_text().split()) == 2, "started although there was no room"
    (small / "ballast").unlink()
    ended = project.ended(client)
    assert ended.code == 0, (ended, project.story())
    assert project.states() == {"done": 40}
    assert sorted(begun.read_text().split(), key=int) == [str(n) for n in range(40)], "once each"
    wait_for(lambda: _noted(project, "there is room again"), "the supervisor's event")


def test_a_run_on_a_disk_that_is_full_already_is_refused(project, small):
    fill(str(small / "ballast"))
    ended = project.run("--", "true", items=range(3), seconds=20)
    assert ended.code == 7 and "no space left" in ended.err, ended
    (small / "ballast").unlink()
    assert project.run("--", "true", items=range(3)).code == 0
