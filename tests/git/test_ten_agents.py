"""Many agents in one repository: all that is merged is in the target once, and was verified."""

from __future__ import annotations

from pathlib import Path

import pytest

from hypervisor.git.command import Git
from hypervisor.queue.task import NewTask
from hypervisor.runs.spec import AgentSpec, GitSpec, RunSpec
from hypervisor.selftest.repositories import write_script
from tests.git.fingerprint import LANDED, fingerprint
from tests.git.support import commit_files
from tests.git.whole_runs import wait
from tests.support import standin
from tests.support.python_runs import opened

WORKERS = 8
# Fails for work that is bad or has conflict markers in it; else it notes the tree that passed.
VERIFY = """#!/bin/sh
if ls bad-* >/dev/null 2>&1; then echo 'a bad file'; exit 1; fi
if grep -q '^<<<<<<<' shared*.txt; then echo 'a conflict'; exit 1; fi
git write-tree >> '{log}'
"""


def items_of(count: int) -> list[str]:
    """A quarter in pairs that change the same file, one in twenty fails verification."""
    kinds = ["own"] * count
    for number in range(0, count // 4 // 2 * 2):
        kinds[number] = f"shared{number // 2}"
    for number in range(max(count // 20, 1)):
        kinds[-1 - number] = "bad"
    return [f"item-{number:02d}-{kind}" for number, kind in enumerate(kinds)]


@pytest.fixture
def count(long):
    return 40 if long else 16


def test_all_that_is_merged_is_there_once_and_was_verified(tmp_path, checkout, monkeypatch, count):
    monkeypatch.setenv("STANDIN_KEY", "secret")
    items = items_of(count)
    (checkout / "folder" / "b.txt").write_text("b\n")
    (checkout / "new file.txt").unlink()
    base = commit_files(checkout, {f"shared{n}.txt": "start\n" for n in range(count // 8)})
    (checkout / "folder" / "b.txt").write_text("dirty\n")
    (checkout / "new file.txt").write_text("new\n")
    before = fingerprint(checkout, *LANDED)
    check = write_script(tmp_path / "check", VERIFY.format(log=tmp_path / "passed"))
    with opened(str(tmp_path / "store" / "store.db")) as hv:
        config = Path(hv.places.data, "config.toml")
        config.write_text(config.read_text() + standin.config(tmp_path / "agents"))
        spec = RunSpec(
            str(checkout),
            AgentSpec("fake-claude", agents=("fake-claude",), prompt="act-lands {}"),
            workers=WORKERS,
            workspace="clone",
            git=GitSpec(merge="branch", verify=(check,)),
        )
        tasks = [NewTask(item, type="run", key=item, data={"item": item}) for item in items]
        hv.submit(spec, tasks, "edits")
        hv.supervise()
        ended = wait(hv, count, 600)
    assert fingerprint(checkout, *LANDED) == before
    check_target(checkout, base, ended)
    check_every_value(checkout, base, tmp_path / "passed")


def check_target(checkout, base, ended):
    """Each task is merged or in review with the reason; what is merged is in the target once."""
    git = Git(str(checkout))
    words = ("log", "--first-parent", "--format=%(trailers:key=Hypervisor-Task,valueonly)")
    landed = git.text(*words, f"{base}..hv/edits").split()
    assert sorted(landed) == sorted(task.id for task in ended.values() if task.state == "done")
    names, again = git.names("ls-tree", "-z", "--name-only", "hv/edits"), list[bool]()
    for item, task in ended.items():
        number, kind = item.split("-")[1:]
        if kind == "bad":
            assert task.state == "review" and "verification failed" in task.reason, task
        else:
            assert task.state == "done", (item, task.state, task.reason)
        assert (f"new-{number}.txt" in names) == (task.state == "done")
        if kind.startswith("shared"):
            again.append(task.attempts > 1)
            lines = git.text("show", f"hv/edits:{kind}.txt").splitlines()
            assert lines.count(f"by {number}") == 1 and lines.count("start") == 1
    assert sum(again) == len(again) // 2 > 0, "of each pair, one met the work of the other"


def check_every_value(checkout, base, log):
    """Wherever the target ever was, that tree had passed the verification."""
    git = Git(str(checkout))
    values = git.text("reflog", "show", "--format=%T %H", "hv/edits").splitlines()
    assert values
    passed = set(log.read_text().split())
    assert [value for value in values if value.split()[0] not in passed] == []
