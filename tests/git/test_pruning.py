"""Pruning a hub: what a clone, the trash, a snapshot or the user's branch needs stays; what was
dropped goes, but not before nobody borrows from the hub."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from hypervisor.git import tidy
from hypervisor.git.command import Git
from hypervisor.git.hub import Hub
from tests.git.whole_runs import runs, submit, wait

DAY = 86_400_000


def hub_of(hv):
    [path] = Path(hv.places.data, "git").glob("*.git")
    return Hub(str(path))


def plant(hub, name):
    """A snapshot of a task whose batch was deleted; returns its commit."""
    blob = hub.git.text("hash-object", "-w", "--stdin", stdin=name.encode())
    tree = hub.git.text("mktree", stdin=f"100644 blob {blob}\tfile\n".encode())
    commit = hub.commit(tree, [], name)
    hub.update_ref(f"refs/hv/snapshots/{name}/1/1", commit)
    return commit


def age(hub):
    """As if nothing had been written for two months."""
    old = time.time() - 60 * 86_400
    for folder, _, names in os.walk(os.path.join(hub.path, "objects")):
        for name in names:
            os.utime(os.path.join(folder, name), (old, old))


def assert_complete(folder):
    """Every object that a ref leads to can be read."""
    git = Git(str(folder), env={"GIT_DIR": str(folder)})
    git.run("fsck", "--connectivity-only", "--no-dangling")
    assert git.text("rev-list", "--all", "--objects", "--count")


@pytest.fixture
def finished(tmp_path):
    """Two finished tasks whose clones are still there."""
    with runs(tmp_path) as (repo, hv):
        submit(hv, repo, "echo changed >> f{}.txt", [1, 2], merge="")
        yield repo, hv, wait(hv, 2)


def test_pruning_waits_until_nobody_borrows(finished):
    _, hv, tasks = finished
    hub, now = hub_of(hv), hv.now()
    clones = [Path(hv.places.data, "git", "work", task.id, ".git") for task in tasks.values()]
    borrowed, dropped = plant(hub, "borrowed"), plant(hub, "dropped")
    Git(str(clones[0].parent)).run("branch", "theirs", borrowed)
    age(hub)
    assert tidy.tidy(hv, now=now).refs == 2
    assert hub.git.commit_of(dropped), "clones borrow from the hub"
    for clone in clones:
        assert_complete(clone)

    assert len(tidy.tidy(hv, now=now + tidy.KEPT_MS + 1).workspaces) == 2
    plant(hub, "more")
    age(hub)
    assert tidy.tidy(hv, now=now + DAY).refs == 1
    assert hub.git.commit_of(dropped), "the trash borrows from the hub"
    trash = [path for path in Path(hv.places.data, "git", "trash").rglob(".git") if path.is_dir()]
    assert len(trash) == 2
    for clone in trash:
        assert_complete(clone)

    age(hub)
    tidy.tidy(hv, now=now + 9 * DAY)  # empties the trash
    assert tidy.tidy(hv, now=now + 20 * DAY).refs == 0, "nothing new was dropped"
    assert hub.git.commit_of(dropped) is None, "it is deleted all the same"
    assert hub.git.commit_of(borrowed), "the clone had it as a branch, which is kept"
    assert_complete(hub.path)
    assert [file.path for file in hv.diff(tasks["1"].id).files] == ["f1.txt"]


def test_what_is_merged_goes_and_what_is_not_stays(finished):
    repo, hv, tasks = finished
    hub, now = hub_of(hv), hv.now()
    for later in (1, 9):  # to the trash, and away
        tidy.tidy(hv, now=now + later * DAY)
    repo.commit({"f1.txt": "line 1\nchanged\n"}, "squashed")
    hub.fetch(str(repo.folder), [("main", "refs/heads/main")])
    saved = {
        title: list(hub.refs(f"refs/hv/snapshots/{task.id}").values())
        for title, task in tasks.items()
    }
    fresh = plant(hub, "fresh")
    assert saved["1"] and saved["2"]
    assert tidy.tidy(hv, now=now + 10 * DAY).refs > 1
    age(hub)
    os.utime(_loose(hub, fresh))
    tidy.tidy(hv, now=now + 26 * DAY)
    assert not any(map(hub.git.commit_of, saved["1"])), "its work is in the user's branch"
    assert all(map(hub.git.commit_of, saved["2"])) and hv.diff(tasks["2"].id).files
    assert hub.git.commit_of(fresh), "it is too new to be deleted"
    assert_complete(hub.path)
    assert hub.git.commit_of("main") == repo.git.text("rev-parse", "main")
    submit(hv, repo, "cat f1.txt > copy.txt", [3], name="again", merge="")
    task = wait(hv, 3)["3"]
    assert task.state == "done" and [file.path for file in hv.diff(task.id).files] == ["copy.txt"]


def _loose(hub, commit):
    return os.path.join(hub.path, "objects", commit[:2], commit[2:])
