"""Runs that git itself started, from a hook or an alias: its variables name the user's repository,
and attempts in clones must not follow them there."""

from __future__ import annotations

from pathlib import Path

import pytest

from hypervisor.queue.task import NewTask
from hypervisor.runs.spec import FunctionSpec, GitSpec, RunSpec
from tests.git.fingerprint import LANDED, fingerprint
from tests.git.whole_runs import runs, submit, wait

CONFIG = """
[workspace]
setup = "git rev-parse --show-toplevel; git tag set-up"
teardown = "git tag torn-down"
"""
COMMITS = """\
import subprocess

def commit(item):
    with open("made", "w") as file:
        file.write(item)
    subprocess.run(["git", "add", "made"], check=True)
    named = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *named, "commit", "-qm", "its own"], check=True)
"""


@pytest.fixture
def from_a_hook(tmp_path, monkeypatch):
    git_dir = tmp_path / "project" / ".git"
    monkeypatch.setenv("GIT_DIR", str(git_dir))
    monkeypatch.setenv("GIT_WORK_TREE", str(git_dir.parent))
    monkeypatch.setenv("GIT_INDEX_FILE", str(git_dir / "index"))
    monkeypatch.setenv("OLDPWD", str(git_dir.parent))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # functions are imported from the project


def test_commands_setup_and_teardown_stay_in_the_clone(tmp_path, from_a_hook):
    with runs(tmp_path, CONFIG) as (repo, hv):
        before = fingerprint(repo.folder, *LANDED)
        script = (
            "echo {} > made; cp made ${OLDPWD:-.}/strayed; git add made; "
            "git -c user.name=a -c user.email=a@b commit -qm 'its own'"
        )
        submit(hv, repo, script, ["1"])
        [task] = wait(hv, 1).values()
        assert task.state == "done", task.reason
        assert fingerprint(repo.folder, *LANDED) == before
        assert repo.read("hv/edits", "made") == "1\n"
        assert str(repo.folder) not in Path(hv.outputs.setup_path(task.id, 1)).read_text()


def test_functions_stay_in_the_clone(tmp_path, from_a_hook):
    with runs(tmp_path) as (repo, hv):
        repo.commit({"commits.py": COMMITS}, "a function")
        before = fingerprint(repo.folder, *LANDED)
        spec = RunSpec(
            str(repo.folder),
            FunctionSpec("commits:commit"),
            workspace="clone",
            git=GitSpec(merge="branch"),
        )
        hv.submit(spec, [NewTask("1", type="run", key="1", data={"item": "1"})], "edits")
        hv.supervise()
        [task] = wait(hv, 1).values()
        assert task.state == "done", task.reason
        assert fingerprint(repo.folder, *LANDED) == before
        assert repo.read("hv/edits", "made") == "1"
