"""Nothing that an agent configures in its repository is executed by us, outside of its sandbox."""

from __future__ import annotations

import os

import pytest

from hypervisor.core.errors import NotCollected
from hypervisor.git.collect import collect
from hypervisor.git.removal import trash
from hypervisor.git.snapshot import take, tree_of_files
from hypervisor.git.work_tree import Limits
from hypervisor.git.workspace import merge_anew
from tests.git.support import agent, files_at, write_files

KEYS = (
    *("core.fsmonitor", "core.sshCommand", "core.alternateRefsCommand", "core.editor"),
    *("core.gitProxy", "core.askPass", "core.pager", "diff.external", "gpg.program"),
    *("diff.evil.command", "diff.evil.textconv", "merge.evil.driver", "filter.evil.clean"),
    *("filter.evil.smudge", "filter.evil.process", "credential.helper", "sequence.editor"),
    *("uploadpack.packObjectsHook", "alias.merge", "alias.status", "interactive.diffFilter"),
    *("remote.origin.uploadpack", "submodule.a.update", "tar.x.command", "trailer.x.command"),
)
HOOKS = ("pre-commit", "post-commit", "post-merge", "post-checkout", "post-index-change")
MORE = ("commit-msg", "prepare-commit-msg", "pre-merge-commit", "reference-transaction")


@pytest.fixture
def witness(workspace, tmp_path):
    """Touched by whatever is executed of the workspace's configuration."""
    path = tmp_path / "witness"
    evil = tmp_path / "evil"
    evil.write_text(f'#!/bin/sh\necho "$0 $*" >> {path}\nexit 0\n')
    evil.chmod(0o755)
    agent(workspace.folder, "echo work > w.txt; echo a >> a.txt")
    agent(workspace.folder, "git -c user.name=a -c user.email=a@b.c commit -qm one a.txt")
    agent(workspace.folder, "git init -q nested; echo n > nested/n.txt")
    attributes = "* filter=evil diff=evil merge=evil\n"
    for folder in (workspace.folder, os.path.join(workspace.folder, "nested")):
        git_dir = os.path.join(folder, ".git")
        values = "".join(
            f'[{section} "{middle}"]\n\t{name} = {evil}\n'
            if (middle := ".".join(parts))
            else f"[{section}]\n\t{name} = {evil}\n"
            for section, *parts, name in (key.split(".") for key in KEYS)
        )
        with open(os.path.join(git_dir, "config"), "a") as file:
            file.write(
                f"{values}[core]\n\thooksPath = {tmp_path}/hooks\n[commit]\n\tgpgSign = true\n"
            )
        os.makedirs(os.path.join(git_dir, "info"), exist_ok=True)
        with open(os.path.join(git_dir, "info", "attributes"), "w") as file:
            file.write(attributes)
    write_files(tmp_path, {f"hooks/{hook}": evil.read_text() for hook in (*HOOKS, *MORE)})
    for hook in (*HOOKS, *MORE):
        (tmp_path / "hooks" / hook).chmod(0o755)
    write_files(tmp_path, {f"{workspace.folder}/.gitattributes": attributes})
    return path


def test_the_witness_sees_what_git_itself_would_execute(workspace, witness):
    agent(workspace.folder, "git status > /dev/null || true; git add --all . || true")
    assert witness.exists()


def test_nothing_of_the_agents_is_executed(workspace, witness, checkout):
    take(workspace, "t", 1, "test", now=1)
    collected = collect(workspace, "t", 1, "work", {}, now=2)
    assert {"a.txt", "w.txt"} <= set(collected.changed_paths)
    assert not witness.exists(), witness.read_text()
    assert trash(workspace, "t", 1, now=3, even_unsaved=True).path
    assert not witness.exists(), witness.read_text()


def test_a_merge_into_the_workspace_executes_nothing(workspace, hub, witness, checkout):
    tip = hub.commit(_with(hub, workspace.base, {"a.txt": "theirs\n"}), [workspace.base], "theirs")
    saved = take(workspace, "t", 1, "test", now=1)
    tree = tree_of_files(workspace, saved.head, Limits(), to_merge=True).id
    merge_anew(workspace, hub.commit(tree, [saved.head], "Work"), tip)
    assert not witness.exists(), witness.read_text()
    assert agent(workspace.folder, "git status --porcelain -- a.txt") == "UU a.txt\n"
    assert "<<<<<<<" in agent(workspace.folder, "cat a.txt")
    assert agent(workspace.folder, "cat w.txt; git log --format=%s -1") == "work\nWork\n"
    with pytest.raises(NotCollected, match=r"conflicts are not resolved: a\.txt"):
        collect(workspace, "t", 2, "work", {}, now=2)
    agent(workspace.folder, "echo both > a.txt; git rm -q --cached .gitattributes")
    head = collect(workspace, "t", 2, "work", {}, now=3).head
    assert files_at(hub.git, head)["a.txt"] == "both\n"
    assert not witness.exists(), witness.read_text()


def _with(hub, base, files):
    """The tree of a commit with other files."""
    entries = hub.git.text("ls-tree", "-r", base).splitlines()
    kept = [line for line in entries if line.split("\t")[1] not in files]
    for name, text in files.items():
        blob = hub.git.text("hash-object", "-w", "--stdin", stdin=text.encode())
        kept.append(f"100644 blob {blob}\t{name}")
    flat = [line for line in kept if "/" not in line.split("\t")[1]]
    return hub.git.text("mktree", stdin=("\n".join(flat) + "\n").encode())
