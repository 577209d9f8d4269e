"""Work in unusual repositories is merged, too; where that is impossible, nothing starts."""

from __future__ import annotations

import pytest

from hypervisor.core.errors import WorkspaceError
from hypervisor.git.command import Git
from hypervisor.queue.task import NewTask
from hypervisor.runs.spec import CommandSpec, GitSpec, RunSpec
from tests.git.support import commit_files, init
from tests.git.whole_runs import wait
from tests.support.python_runs import opened


def shallow(folder):
    init(folder / "origin")
    commit_files(folder / "origin", {"a.txt": "1\n"})
    commit_files(folder / "origin", {"a.txt": "2\n"})
    Git(str(folder)).run("clone", "--quiet", "--depth=1", f"file://{folder}/origin", "p")


def with_submodule(folder):
    init(folder / "library")
    commit_files(folder / "library", {"lib.txt": "lib\n"})
    init(folder / "p")
    commit_files(folder / "p", {"a.txt": "2\n"})
    words = ("submodule", "--quiet", "add", str(folder / "library"), "lib")
    Git(str(folder / "p")).run("-c", "protocol.file.allow=always", *words)
    commit_files(folder / "p", {})


def inside_another(folder):
    init(folder / "p")
    commit_files(folder / "p", {"outer.txt": "outer\n"})
    init(folder / "p" / "inner")
    commit_files(folder / "p" / "inner", {"a.txt": "2\n"})


def sparse(folder):
    init(folder / "p")
    commit_files(folder / "p", {"a.txt": "2\n", "other/b.txt": "b\n"})
    Git(str(folder / "p")).run("sparse-checkout", "set", "only")


def submit(hv, cwd):
    spec = RunSpec(
        str(cwd),
        CommandSpec(("sh", "-c", "echo by {} > new.txt")),
        workspace="clone",
        git=GitSpec(merge="branch", verify=("test -f new.txt && test -f a.txt",)),
    )
    hv.submit(spec, [NewTask("one", type="run", key="one", data={"item": "one"})], "edits")
    hv.supervise()


@pytest.mark.parametrize("make", [shallow, with_submodule, inside_another, sparse])
def test_work_is_merged(tmp_path, make):
    make(tmp_path)
    cwd = tmp_path / "p" / "inner" if make is inside_another else tmp_path / "p"
    with opened(str(tmp_path / "store" / "store.db")) as hv:
        submit(hv, cwd)
        task = wait(hv, 1)["one"]
    assert task.state == "done", task.reason
    git = Git(str(cwd))
    changed = git.names("diff", "--name-only", "-z", "HEAD", "hv/edits")
    assert changed == ["new.txt"]
    assert git.text("show", "hv/edits:new.txt") == "by one"


def test_an_empty_repository_is_refused_before_anything_starts(tmp_path):
    init(tmp_path / "p")
    with opened(str(tmp_path / "store" / "store.db")) as hv:
        with pytest.raises(WorkspaceError, match=r"has no commits yet.*Nothing was started"):
            submit(hv, tmp_path / "p")
        assert hv.list_tasks() == ()
