"""Items that are files, but not in the commit that clones start from, are refused before anything
starts, by every way to submit a run."""

from __future__ import annotations

import os

import pytest

from hypervisor.agents.spawn import TaskRunner
from hypervisor.core.errors import WorkspaceError
from hypervisor.git.item_files import ItemFiles
from hypervisor.queue.task import NewTask
from hypervisor.runs.config import WorkspaceSettings
from hypervisor.runs.spec import CommandSpec, GitSpec, RunSpec
from hypervisor.selftest.repositories import Repo
from tests.git.whole_runs import runs, submit, wait


@pytest.fixture
def repo(tmp_path):
    repo = Repo(tmp_path / "project")
    repo.commit({"a.txt": "a\n", "src/b.txt": "b\n", ".gitignore": "*.log\n.env\nout/\n"}, "first")
    return repo


def said(repo, *items, cwd="", settings=None, **git):
    spec = RunSpec(
        str(repo.folder / cwd), CommandSpec(("true",)), workspace="clone", git=GitSpec(**git)
    )
    files = ItemFiles(spec, lambda: settings or WorkspaceSettings())
    for item in items:
        files.add(str(item))
    return [finding.message for finding in files.findings()]


def write(repo, *names):
    for name in names:
        path = repo.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("new\n")


def test_the_count_three_names_and_the_next_step_are_one_line(repo):
    write(repo, *(f"new{n}.txt" for n in range(5)))
    assert said(repo, *(f"new{n}.txt" for n in range(5)), "a.txt") == [
        "5 items are not committed, so the clones do not have them: new0.txt, new1.txt, new2.txt "
        "and 2 more; commit them, or use --include-dirty or --workspace project"
    ]
    assert said(repo, "new1.txt") == [
        "1 item is not committed, so the clones do not have it: new1.txt; commit it, or use "
        "--include-dirty or --workspace project"
    ]


def test_an_item_outside_of_a_sparse_checkout_has_that_reason(repo):
    repo.commit({f"docs/{n}.txt": "d\n" for n in range(2)} | {"src/deep/c.txt": "c\n"}, "more")
    os.symlink("src", repo.folder / "link")
    inside = ["a.txt", "src/b.txt", "src/deep/c.txt", "src/deep", "src", "link/b.txt"]
    assert said(repo, *inside, sparse=("src",)) == []
    assert said(repo, "a.txt", "src/b.txt", "src", sparse=("/src/deep/",)) == []
    assert said(repo, *inside, "docs/0.txt", sparse=("src",)) == [
        "1 item is outside of --sparse src, so the clones do not have it: docs/0.txt; add --sparse "
        "with its folder, or leave --sparse out"
    ]
    [line] = said(repo, "docs", "docs/1.txt", "src/b.txt", sparse=("src/deep", "other"))
    assert line.startswith("2 items are outside of --sparse src/deep --sparse other")
    write(repo, "docs/new.txt")
    [line] = said(repo, "docs/new.txt", sparse=("src",))
    assert line.startswith("1 item is not committed")


def test_a_task_that_was_added_later_is_told_about_the_sparse_checkout(tmp_path):
    with runs(tmp_path) as (repo, hv):
        repo.commit({"docs/a.txt": "a\n", "src/b.txt": "b\n"}, "folders")
        submit(hv, repo, "cat {}", ["src/b.txt"], sparse=("src",), merge="")
        late = {"item": "docs/a.txt"}
        hv.add([NewTask("docs/a.txt", type="run", data=late)], batch="edits")
        task = wait(hv, 2)["docs/a.txt"]
        assert task.state == "failed"
        assert "outside of --sparse src, or not committed" in (task.reason or "")


def test_what_is_committed_or_no_file_of_the_repository_is_fine(repo, tmp_path):
    write(repo, ".hypervisor/batches/list.jsonl")
    (tmp_path / "outside.txt").write_text("outside\n")
    (repo.folder / "a.txt").write_text("changed\n")
    os.symlink("src", repo.folder / "link")
    repo.commit({}, "a link")
    names = ("a.txt", "src", "src/b.txt", "./src//b.txt", "link/b.txt", "link", ".", "")
    texts = ("fix the login", "no-such-file.txt", "x\0y", "x" * 5000, "\udcff", "\ud800")
    outside = ("../outside.txt", tmp_path / "outside.txt", ".hypervisor/batches/list.jsonl")
    assert said(repo, *names, *texts, *outside, repo.folder / "a.txt") == []
    assert said(repo, "b.txt", "../a.txt", cwd="src") == []


def test_paths_are_taken_from_the_folder_of_the_run(repo):
    write(repo, "src/new.txt", "staged.txt")
    repo.git.run("add", "staged.txt")
    [line] = said(repo, "new.txt", "../staged.txt", repo.folder / "src" / "new.txt", cwd="src")
    assert line.startswith("2 items are not committed") and "src/new.txt, staged.txt;" in line


def test_uncommitted_files_can_be_included(repo):
    write(repo, "new.txt", "folder/deep/new.txt", "debug.log")
    assert said(repo, "new.txt", "folder", "folder/deep/new.txt", include_dirty=True) == []
    [line] = said(repo, "new.txt", "debug.log", include_dirty=True)
    assert "1 item is ignored by git" in line and "--include-dirty" not in line


def test_ignored_files_are_refused_unless_the_workspace_gets_them(repo):
    write(repo, "debug.log", ".env", "out/made.txt")
    items = ("debug.log", ".env", "out/made.txt")
    assert said(repo, *items) == [
        "3 items are ignored by git, so the clones do not have them: debug.log, .env, "
        "out/made.txt; add them to include under [workspace] in config.toml, or use "
        "--workspace project"
    ]
    settings = WorkspaceSettings(include=(".env",), caches=("out",))
    [line] = said(repo, *items, settings=settings)
    assert "1 item is ignored by git" in line and "debug.log;" in line
    assert said(repo, *items, settings=WorkspaceSettings(setup=("make out",))) == []


def test_the_advice_fits_the_options(repo):
    first = repo.git.text("rev-parse", "HEAD")
    repo.commit({"later.txt": "later\n"}, "later")
    write(repo, "new.txt")
    [line] = said(repo, "later.txt", base=first)
    assert f"not in {first}" in line and line.endswith("another --base, or use --workspace project")
    assert said(repo, "new.txt", merge="branch")[0].endswith("; commit it, or use --include-dirty")
    assert said(repo, "new.txt", merge="push")[0].endswith("; commit it")


def test_a_batch_is_refused_before_anything_starts(tmp_path):
    with runs(tmp_path) as (repo, hv):
        write(repo, "inbox.txt")
        spec = RunSpec(str(repo.folder), CommandSpec(("cat", "{}")), workspace="clone")
        names = [*(f"f{n}.txt" for n in range(8)), *map(str, range(200)), "inbox.txt"]
        tasks = [NewTask(name, type="run", key=name, data={"item": name}) for name in names]
        for given in (tasks, iter(tasks)):
            with pytest.raises(WorkspaceError, match=r"1 item is not .* inbox.txt; .* started\."):
                hv.submit(spec, given, "edits")
        how = TaskRunner(command=("cat", "{}"), cwd=str(repo.folder), git=GitSpec(merge="branch"))
        with pytest.raises(WorkspaceError, match=r"inbox.txt; commit it, or use --include-dirty"):
            hv.spawn_parallel_tasks([{"description": "read", "item": "inbox.txt"}], how=how)
        assert not hv.batches() and not os.path.exists(os.path.join(hv.places.data, "git"))
