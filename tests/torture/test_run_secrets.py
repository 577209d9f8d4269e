"""The environment of a run holds secrets: whatever is killed, they are never written to a disk."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from hypervisor.core.places import is_in_memory
from hypervisor.resources.process_table import environment
from tests.torture.fleet import DEADLINE, PROGRAM, kill, wait_for

SECRET = "planted-7f3a9c"
# Hide the file system in memory behind a folder of the disk, then run what is given.
ON_DISK = 'mount --bind "$1" /dev/shm && shift && exec "$@"'


@pytest.fixture
def on_disk(project, tmp_path):
    """Starts programs that find a disk where others have a file system in memory."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if is_in_memory(str(disk)):
        pytest.skip("there is no disk here")
    words = ["unshare", "--mount", "sh", "-c", ON_DISK, "sh", str(disk)]
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare")
    tried = subprocess.run([*words, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"no mount namespace of our own: {tried.stderr.strip()}")
    return words


def holding_secret(folder):
    return [
        str(path)
        for path in folder.rglob("*")
        if path.is_file() and SECRET.encode() in path.read_bytes()
    ]


def start(project, words=()):
    """A run of one long command, in the background, with the secret in its environment."""
    (project.folder / "listed").write_text("300\n")
    command = [*words, *PROGRAM, "run", "--detach", "--items", "listed", "--", "sleep"]
    done = subprocess.run(
        command,
        cwd=project.folder,
        env={**project.env, "PLANTED": SECRET},
        timeout=DEADLINE,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done
    wait_for(lambda: sleeping(project), "the command", story=project.story)
    return done


def sleeping(project):
    return [process for process in project.processes() if process.name == "sleep"]


def kill_all(project):
    def killed():
        for process in (found := project.processes()):
            kill(process)
        return not found

    wait_for(killed, "the end of everything")


def test_after_a_kill_of_everything_it_is_in_memory_alone(project, tmp_path):
    start(project)
    kill_all(project)
    assert holding_secret(tmp_path) == []
    kept = [file for file in project.kept() if SECRET.encode() in file.read_bytes()]
    assert kept and all(is_in_memory(str(file.parent)) for file in kept)


def test_without_a_place_in_memory_it_is_not_kept_and_said_so(project, tmp_path, on_disk):
    done = start(project, on_disk)
    assert "environment was not saved" in done.stderr
    (command,) = sleeping(project)
    assert f"PLANTED={SECRET}".encode() in environment(command.pid), "its supervisor's is the same"
    kill_all(project)
    assert holding_secret(tmp_path) == []
