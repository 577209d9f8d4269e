"""Agents in a sandbox: they cannot get out, and still reach their MCP server."""

from __future__ import annotations

import json
import os
import sys

import pytest

from hypervisor.runs.sandbox.host import host_walls
from hypervisor.runs.sandbox.level import refused
from tests.runs.sandbox.conftest import project as project
from tests.runs.sandbox.conftest import targets as targets
from tests.support.targets import make_repository, without_bubblewrap, worked
from tests.support.ungoverned import UNGOVERNED
from tests.torture.fleet import ROOT

HAS_BUBBLEWRAP = pytest.mark.skipif(
    not host_walls().bubblewrap, reason=f"bubblewrap: {host_walls().why_not}"
)
HAS_LANDLOCK = pytest.mark.skipif(not host_walls().can_confine, reason="no Landlock 6")
PROFILE = """
[agents.attacker]
like = "claude"
program = "{program}"
keys = []
login = []
hosts = []
sandbox = "{level}"
env = {{ ATTACK = {attack} }}
"""


def install(project, targets, level: str) -> None:
    """The stand-in, in a folder of the user's home that is on no PATH."""
    program = project.folder.parent / "opt" / "attacker" / "bin" / "attacker"
    program.parent.mkdir(parents=True)
    source = (ROOT / "tests/support/attacking_agent.py").read_text()
    # Not that of the virtual environment: a first line cannot name a path with spaces.
    program.write_text(f"#!{os.path.realpath(sys.executable)} -IS\n{source}")
    program.chmod(0o755)
    attack = json.dumps(json.dumps(targets.words()))
    profile = PROFILE.format(program=program, level=level, attack=attack)
    project.configure(UNGOVERNED + profile)


@pytest.mark.parametrize(
    ("level", "wall"),
    [
        ("none", ""),
        pytest.param("files", "bubblewrap", marks=HAS_BUBBLEWRAP),
        pytest.param("network", "bubblewrap", marks=HAS_BUBBLEWRAP),
        pytest.param("files", "landlock", marks=HAS_LANDLOCK),
    ],
)
def test_an_agent_is_confined_by_its_profile_and_reaches_its_server(project, targets, level, wall):
    install(project, targets, level)
    make_repository(project.folder)
    if wall == "landlock":
        without_bubblewrap(project)
    ended = project.run("--agent", "attacker", "--quiet", "--name", "b", items=["item-1"])
    assert ended.code == 0, ended.err + project.story()
    with project.open() as hv:
        (task,) = hv.list_tasks()
        receipts = [receipt.text for receipt in hv.receipts("b")]
        deeds = worked(task.result["saw"])
    assert {name for name, success in deeds.items() if not success} == refused(level, wall)
    evidence = [] if level == "none" else [f"sandbox: {level}, built with {wall}"]
    assert [line for line in receipts if "built with" in line] == evidence
