"""Where attempts work if nobody has chosen: clones for agents that edit a git repository."""

from __future__ import annotations

import pytest

from hypervisor.runs.check_spec import with_workspace
from hypervisor.runs.spec import AgentSpec, CommandSpec, GitSpec, RunSpec, spec_data, spec_from

EDITS, READS = AgentSpec("claude"), AgentSpec("claude", permissions="read-only")


@pytest.fixture
def repository(tmp_path):
    """Of a linked work tree, where .git is a file."""
    (tmp_path / ".git").write_text("gitdir: elsewhere\n")
    (tmp_path / "below").mkdir()
    return str(tmp_path / "below")


@pytest.mark.parametrize(
    ("work", "workspace"),
    [
        (EDITS, "clone"),
        (EDITS._replace(permissions="full"), "clone"),
        (READS, "project"),
        (EDITS._replace(mode="pull"), "project"),
        (CommandSpec(("true",)), "project"),
    ],
)
def test_agents_that_edit_a_repository_get_clones(repository, work, workspace):
    assert with_workspace(RunSpec(repository, work)).workspace == workspace


def test_other_runs_stay_in_the_project(tmp_path, repository):
    outside = tmp_path.parent / "outside"
    assert with_workspace(RunSpec(str(outside), EDITS)).workspace == "project"
    assert with_workspace(RunSpec(repository, EDITS, propose=True)).workspace == "project"
    assert with_workspace(RunSpec(repository, EDITS, workspace="scratch")).workspace == "scratch"
    assert with_workspace(RunSpec(repository, EDITS, workspace="project")).workspace == "project"


def test_options_for_git_ask_for_a_clone(tmp_path):
    spec = RunSpec(str(tmp_path), CommandSpec(("true",)), git=GitSpec(merge="branch"))
    assert with_workspace(spec).workspace == "clone"


def test_the_choice_is_stored_even_if_it_is_the_project(tmp_path):
    """A batch of an earlier version, without one, works in the project."""
    spec = with_workspace(RunSpec(str(tmp_path), EDITS))
    assert spec_data(spec)["workspace"] == "project"
    assert spec_from({"cwd": str(tmp_path), "command": ["true"]}).workspace == ""
