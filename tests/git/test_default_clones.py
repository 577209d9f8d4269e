"""Clones by default: agents that edit a repository leave the checkout alone, and the work is easy
to find; every task starts at the commit that was checked out when the batch was submitted."""

from __future__ import annotations

import pytest

from hypervisor.core.errors import WorkspaceError
from hypervisor.queue.sql import queries
from hypervisor.queue.task import NewTask
from hypervisor.runs.spec import AgentSpec, CommandSpec, GitSpec, RunSpec
from tests.git.support import init
from tests.git.whole_runs import runs, submit, wait
from tests.support import standin


def new_task(item):
    return NewTask(item, type="run", key=item, data={"item": item})


def test_an_agent_works_in_a_clone_unless_told_otherwise(tmp_path, monkeypatch):
    monkeypatch.setenv("STANDIN_KEY", "sk-planted")
    with runs(tmp_path, standin.config(tmp_path / "agents")) as (repo, hv):
        spec = RunSpec(str(repo.folder), AgentSpec("fake-claude", prompt="act-edits {item}"))
        hv.submit(spec, [new_task("one")], "agents")
        hv.supervise()
        [task] = wait(hv, 1).values()
        assert task.state == "done"
        assert not (repo.folder / "new.txt").exists()
        assert {file.path for file in hv.diff(task.id).files} == {"a.txt", "new.txt"}
        base = hv.store.read(queries.batch, "agents").spec["git_base"]
        assert base == repo.git.text("rev-parse", "HEAD")


def test_a_diff_can_have_only_some_files_and_leaves_out_large_ones(tmp_path):
    with runs(tmp_path) as (repo, hv):
        script = "echo x >> f1.txt; echo y > '*.txt'; yes | head -c 600000 > large.txt"
        spec = RunSpec(str(repo.folder), CommandSpec(("sh", "-c", script)), workspace="clone")
        hv.submit(spec, [new_task("1")], "edits")
        hv.supervise()
        [task] = wait(hv, 1).values()
        counts = {file.path: file.added for file in hv.diff(task.id, paths=()).files}
        assert counts == {"f1.txt": 1, "*.txt": 1, "large.txt": 300_000}
        assert hv.diff(task.id, paths=()).text == ""
        assert hv.diff(task.id, paths=["*.txt"]).text.count("diff --git") == 1, "not a pattern"
        both = hv.diff(task.id, paths=["f1.txt", "large.txt"]).text
        assert "+x" in both and "large" not in both


def test_later_commits_and_branches_do_not_change_the_base(tmp_path):
    with runs(tmp_path) as (repo, hv):
        first = repo.git.text("rev-parse", "HEAD")
        spec = RunSpec(
            str(repo.folder),
            CommandSpec(("sh", "-c", "git rev-parse HEAD > at")),
            workspace="clone",
        )
        hv.submit(spec, [new_task("1")], "edits")
        repo.git.run("checkout", "--quiet", "-b", "elsewhere")
        repo.commit({"later.txt": "later\n"}, "later")
        repo.git.run("branch", "-D", "main")
        hv.supervise()
        [task] = wait(hv, 1).values()
        diff = hv.diff(task.id)
        assert diff.base == first and f"+{first}" in diff.text


def test_uncommitted_changes_are_those_of_the_submission(tmp_path):
    with runs(tmp_path) as (repo, hv):
        (repo.folder / "f1.txt").write_text("dirty\n")
        spec = RunSpec(
            str(repo.folder),
            CommandSpec(("sh", "-c", "cp f1.txt seen.txt")),
            git=GitSpec(include_dirty=True),
        )
        hv.submit(spec, [new_task("1")], "edits")
        (repo.folder / "f1.txt").write_text("dirty again\n")
        hv.supervise()
        [task] = wait(hv, 1).values()
        assert "+dirty\n" in hv.diff(task.id).text + "\n"


def test_items_that_are_files_lead_into_the_clone(tmp_path):
    with runs(tmp_path) as (repo, hv):
        absolute = str(repo.folder / "f1.txt")
        submit(hv, repo, 'echo changed >> "{}"', [absolute, "f2.txt"], merge="")
        tasks = wait(hv, 2)
        assert (repo.folder / "f1.txt").read_text() == "line 1\n"
        assert [file.path for file in hv.diff(tasks[absolute].id).files] == ["f1.txt"]
        assert [file.path for file in hv.diff(tasks["f2.txt"].id).files] == ["f2.txt"]


def test_an_item_that_appears_later_fails_with_the_reason(tmp_path):
    with runs(tmp_path) as (repo, hv):
        spec = RunSpec(str(repo.folder), CommandSpec(("cat", "{}")), workspace="clone")
        hv.submit(spec, [new_task("inbox.txt")], "edits")
        (repo.folder / "inbox.txt").write_text("new\n")
        hv.supervise()
        [task] = wait(hv, 1).values()
        assert task.state == "failed" and "not in the clone" in task.reason
        assert "--include-dirty" in task.reason


def test_a_repository_without_commits_is_refused_when_submitted(tmp_path):
    with runs(tmp_path) as (_, hv):
        init(tmp_path / "empty")
        spec = RunSpec(str(tmp_path / "empty"), CommandSpec(("true",)), workspace="clone")
        with pytest.raises(WorkspaceError, match=r"has no commits yet.*--workspace project"):
            hv.submit(spec, [new_task("1")], "agents")
        assert not hv.batches()


def test_a_task_that_changes_nothing_says_so(tmp_path):
    with runs(tmp_path) as (repo, hv):
        submit(hv, repo, "test {} = 1 || echo new > new.txt", [1, 2], merge="")
        tasks = wait(hv, 2)
        said = {
            event.task: event.data["message"] for event in hv.events() if event.kind == "snapshot"
        }
        assert said == {tasks["1"].id: "it changed nothing"}
        total = hv.summary("edits")
        assert total.unchanged == 1
        assert {task.title: task.unchanged for task in total.tasks} == {"1": True, "2": False}
