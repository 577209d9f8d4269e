"""The processes of a confined attempt: how they end, and that all of them do."""

from __future__ import annotations

import pytest

from hypervisor.runs.sandbox.host import host_walls
from tests.torture.fleet import wait_for

pytestmark = pytest.mark.skipif(not host_walls().bubblewrap, reason=host_walls().why_not)
WAITS = """
trap 'echo ended > ended; exit 3' TERM
(setsid sleep 600 &) ; (sleep 600 &)
echo started > started
while :; do sleep 0.05; done
"""


@pytest.mark.parametrize("level", ["files", "network"])
def test_a_stop_is_gentle_and_ends_everything(project, level):
    words = ("--sandbox", level, "--shell", "--stdin", "item", "--name", "b")
    client = project.start("run", *words, "--", WAITS, items="a")
    wait_for((project.folder / "started").exists, "the attempt", story=project.story)
    with project.open() as hv:
        (task,) = hv.list_tasks()
        hv.kill(task.id)
    project.ended(client)
    project.wait_until_left()
    assert (project.folder / "ended").exists(), "it had no time to clean up"


@pytest.mark.parametrize("level", ["files", "network"])
def test_exit_codes_are_kept(project, level):
    words = ("--sandbox", level, "--shell", "--stdin", "item", "--name", "b", "--quiet")
    project.run(*words, "--", "exit 7", items="a")
    ended = project.run("--sandbox", level, "--quiet", "--name", "c", "--", "false", items="a")
    assert ended.code == 9
    with project.open() as hv:
        assert [row.exit_code for name in "bc" for row in hv.results(name)] == [7, 1]


def test_a_missing_program_is_named(project):
    script = project.folder / "gone"
    script.write_text("#!/bin/sh\nrm gone\n")
    script.chmod(0o755)
    words = ("--sandbox", "files", "--workers", "1", "--claim", "1", "--quiet")
    project.run(*words, "--", "./gone", items="ab")
    with project.open() as hv:
        reasons = [task.reason for task in hv.list_tasks(states=("failed",))]
    assert reasons == ["command not found: ./gone"]
