"""Every level refuses what it promises to refuse, and nothing is promised that does not hold."""

from __future__ import annotations

import pytest

from hypervisor.batches.submit import submit
from hypervisor.core.errors import EXIT_CODES
from hypervisor.queue.sql import pauses
from hypervisor.queue.task import NewTask
from hypervisor.runs.sandbox.host import host_walls
from hypervisor.runs.sandbox.level import PROMISES, refused
from hypervisor.runs.spec import CommandSpec, RunSpec
from tests.support.targets import make_repository, without_bubblewrap, worked
from tests.torture.fleet import wait_for

HAS_BUBBLEWRAP = pytest.mark.skipif(
    not host_walls().bubblewrap, reason=f"bubblewrap: {host_walls().why_not}"
)
HAS_LANDLOCK = pytest.mark.skipif(not host_walls().can_confine, reason="no Landlock 6")
LEVELS = [
    ("none", ""),
    pytest.param("files", "bubblewrap", marks=HAS_BUBBLEWRAP),
    pytest.param("network", "bubblewrap", marks=HAS_BUBBLEWRAP),
    pytest.param("files", "landlock", marks=HAS_LANDLOCK),
]


@pytest.mark.parametrize(("level", "wall"), LEVELS)
def test_a_command_is_refused_exactly_what_the_level_promises(project, targets, level, wall):
    words = ["--sandbox", level, "--quiet", "--print"]
    if wall == "landlock":  # it cannot hide the store inside of the project
        without_bubblewrap(project)
        make_repository(project.folder)
        words += ["--workspace", "clone"]
    ended = project.run(*words, "--", *targets.words(), items="a")
    assert ended.code == 0, ended.err + project.story()
    deeds = worked(ended.out)
    assert {name for name, success in deeds.items() if not success} == refused(level, wall), (
        ended.out
    )
    assert set(deeds) == set(PROMISES)


@HAS_BUBBLEWRAP
def test_the_evidence_is_in_receipts(project, targets):
    words = ["--sandbox", "network", "--quiet", "--name", "b"]
    project.run(*words, "--", *targets.words(), items="a")
    with project.open() as hv:
        lines = [receipt.text for receipt in hv.receipts("b")]
    assert lines == [
        "sandbox: network, built with bubblewrap",
        f"sandbox: refused a connection to 127.0.0.1:{targets.port}",
    ]


def test_nothing_starts_without_the_sandbox_that_was_asked_for(project, targets):
    without_bubblewrap(project)
    ended = project.run("--sandbox", "network", "--quiet", "--", *targets.words(), items="a")
    assert ended.code == EXIT_CODES["sandbox_unavailable"]
    assert "needs user, PID and network namespaces" in ended.err
    assert "no namespaces here" in ended.err and "Nothing was started" in ended.err
    assert project.states() == {}


@HAS_BUBBLEWRAP
def test_a_worker_starts_nothing_if_the_walls_are_gone_by_then(project, targets):
    """The supervisor may have another PATH than the client that submitted the batch."""
    project.configure('[sandbox]\nlevel = "network"\n')
    with project.open() as hv:
        spec = RunSpec(str(project.folder), CommandSpec(tuple(targets.words())))
        submit(hv, spec, [NewTask("a", data={"item": "a"})], "b")
    without_bubblewrap(project)
    project.ended(project.start("supervise", "--detach"))
    wait_for(lambda: _paused(project), "the pause", story=project.story)
    assert "no namespaces here" in _paused(project)
    assert project.states() == {"active": 1}
    assert targets.neighbor.poll() is None and not targets.outside.exists()


def _paused(project) -> str:
    with project.open() as hv:
        return "; ".join(pause.reason or "" for pause in hv.store.read(pauses.pauses))


def test_functions_cannot_be_confined(project):
    ended = project.run("--sandbox", "files", "--fn", "json:dumps", items="a")
    assert ended.code != 0 and "not with --fn" in ended.err
    project.configure('[sandbox]\nlevel = "files"\n')
    ended = project.run("--fn", "json:dumps", items="a")
    assert ended.code != 0 and "use --sandbox none" in ended.err
    assert project.run("--sandbox", "none", "--fn", "json:dumps", items="a").code == 0
