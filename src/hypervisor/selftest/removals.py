"""The removal of workspaces killed again and again: what they held stays reachable in the hub."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from hypervisor.git import hub as hubs
from hypervisor.git.command import Git
from hypervisor.git.hub import Hub
from hypervisor.git.removal import empty_trash, trash
from hypervisor.git.repository import discover
from hypervisor.git.workspace import create, open_existing
from hypervisor.selftest.crew import ForkServer
from hypervisor.selftest.part import Figures, Setting, Skipped, Violation, ensure
from hypervisor.selftest.project import wait_until
from hypervisor.selftest.repositories import Repo

LONGEST = 0.3  # seconds until a removal is killed
FILES = 20
PATIENCE = 20.0


def run(setting: Setting) -> Figures:
    if setting.kind != "sqlite":
        raise Skipped("the same with either database; run with the default store")
    if shutil.which("git") is None:
        raise Skipped("git is not installed")
    dice = random.Random(setting.seed)
    figures = {"kills": 0, "workspaces removed": 0, "contents found again": 0}
    repo = Repo(setting.folder / "repository")
    repo.commit({f"{n}.txt": f"{n}\n" for n in range(FILES)}, "first")
    data = str(setting.folder / "data")
    with closing(ForkServer("hypervisor.selftest.removals")) as crew:
        while not figures["workspaces removed"] or not setting.is_over:
            number = figures["workspaces removed"]
            hub, folder = _workspace(repo, data, f"task{number}")
            blobs = _work(folder, number, dice)
            args = ("remove", str(repo.folder), data, f"task{number}")
            for _ in range(dice.randrange(4)):
                child = crew.start(*args, bug=setting.bug)
                time.sleep(dice.random() * LONGEST)  # at any moment
                if child.pid not in crew.ended():
                    child.kill()
                    figures["kills"] += 1
                child.wait()
            ensure(crew.start(*args, bug=setting.bug).wait() == 0, "a workspace cannot be removed")
            ensure(not os.path.lexists(folder), "a removed workspace is still there")
            _check(hub, blobs)
            figures["workspaces removed"] += 1
            figures["contents found again"] += len(blobs)
            setting.tell(f"{figures['kills']} kills")
    return figures


def remove(checkout: str, data: str, name: str) -> None:
    """The job: move a workspace to the trash and empty that. A git process of a job that was
    killed may still run in the workspace for a moment, which is then kept."""
    hubs.STALE_LOCK = 0.3  # its holder was killed
    reasons: Sequence[str] = ()

    def is_moved() -> bool:
        nonlocal reasons
        workspace = open_existing(f"{data}/git/work/{name}")
        reasons = trash(workspace, name, 1, now=1).why_kept if workspace is not None else ()
        return not reasons

    if not wait_until(is_moved, PATIENCE):
        raise Violation(f"a workspace has to stay: {reasons}")
    empty_trash(f"{data}/git/trash", now=1, retention=0)


def _workspace(repo: Repo, data: str, name: str) -> tuple[Hub, str]:
    repository = discover(str(repo.folder))
    if repository is None:
        raise Violation("the repository was not recognized")
    hub, folder = hubs.open_hub(data, repository), f"{data}/git/work/{name}"
    create(hub, folder, f"hv/b/{name}", hub.resolve("HEAD"))
    return hub, folder


def _work(folder: str, number: int, dice: random.Random) -> list[str]:
    """Leave work behind in every way. Returns the blobs that must not be lost."""
    git = Git(folder)
    blobs = []

    def write(name: str) -> None:
        path = Path(folder, name)
        path.write_text(f"{name} of {number}: {dice.getrandbits(64)}\n")
        blobs.append(git.text("hash-object", str(path)))

    write("committed.txt")
    git.run("add", "--all")
    git.run("commit", "--quiet", "--message", "work")
    write("stashed.txt")
    git.run("add", "--all")
    git.run("stash", "--quiet")
    git.run("checkout", "--quiet", "--detach")
    write("detached.txt")
    git.run("add", "--all")
    git.run("commit", "--quiet", "--message", "nowhere")
    git.run("checkout", "--quiet", "-")
    write("0.txt")  # changed
    write("untracked.txt")
    return blobs


def _check(hub: Hub, blobs: list[str]) -> None:
    reachable = {
        line.split()[0] for line in hub.git.text("rev-list", "--objects", "--all").splitlines()
    }
    lost = [blob for blob in blobs if blob not in reachable]
    ensure(not lost, f"{len(lost)} of {len(blobs)} contents of a removed workspace are lost")
