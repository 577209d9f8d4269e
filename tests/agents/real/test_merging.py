"""Real agents edit one repository: what they do is verified, and merged once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hypervisor.selftest.repositories import Repo, write_script
from tests.agents.real.fleet import AgentProject
from tests.agents.real.moves import Move, Turn, result, shell
from tests.git.fingerprint import LANDED, fingerprint

pytestmark = pytest.mark.agents
OURS = tuple(name.removeprefix(".git/") for name in LANDED)
# The first ones change the same file in pairs. Done again, it keeps both sides of a conflict.
EDIT = """#!/bin/sh
number=$(expr "${1#item-}" + 0)
file=own-$1.txt
if [ $number -lt {shared} ]; then file=shared-$((number / 2)).txt; fi
touch $file
grep -v -e '^<<<<<<<' -e '^=======' -e '^>>>>>>>' -e "^by $1\\$" $file > $file.new
echo "by $1" >> $file.new
mv $file.new $file
"""
VERIFY = """#!/bin/sh
if grep -q '^<<<<<<<' shared-*.txt; then exit 1; fi
git write-tree >> '{log}'
"""
REPORT = result({"status": "completed", "summary": "changed it"})


def edits(command: str) -> Callable[[Turn], Move]:
    """Edits once, and again when it is asked to resolve a conflict; then it reports."""

    def move(turn: Turn) -> Move:
        made = sum(command in str(call.args) for call in turn.calls)
        wanted = 2 if "with conflicts in shared-" in turn.text else 1
        return shell(command) if made < wanted else REPORT

    return move


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_what_they_do_is_verified_and_merged_once(
    project: AgentProject, agent: str, long: bool
) -> None:
    count, shared, workers = (40, 10, "8") if long else (6, 2, "3")
    repo = Repo(project.folder)
    files = {f"shared-{pair}.txt": "start\n" for pair in range(shared // 2)}
    base = repo.commit({".gitignore": ".hypervisor/\n", **files})
    edit = write_script(project.folder.parent / "edit", EDIT.replace("{shared}", str(shared)))
    log = project.folder.parent / "passed"
    check = write_script(project.folder.parent / "check", VERIFY.format(log=log))
    for item in project.items(count):
        # Not the name alone: claude also sends the titles of recent commits.
        project.model.script(f"Title: `{item}`", edits(f"'{edit}' {item}"))
    before = fingerprint(project.folder / ".git", *OURS)
    options = ("--permissions", "full", "--workers", workers, "--name", "edits")
    ended = project.work(agent, count, *options, "--merge", "branch", "--verify", f"'{check}'")
    assert ended.code == 0, ended.err + ended.out + project.story()
    assert {task.state for task in project.tasks()} == {"done"}
    assert fingerprint(project.folder / ".git", *OURS) == before
    for number, item in enumerate(project.items(count)):
        name = f"shared-{number // 2}.txt" if number < shared else f"own-{item}.txt"
        text = repo.read("hv/edits", name) or ""
        assert text.splitlines().count(f"by {item}") == 1, (item, text)
    words = ("log", "--first-parent", "--format=%(trailers:key=Hypervisor-Task,valueonly)")
    landed = repo.git.text(*words, f"{base}..hv/edits").split()
    assert sorted(landed) == sorted(task.id for task in project.tasks())
    trees = repo.git.text("reflog", "show", "--format=%T", "hv/edits").split()
    assert trees and set(trees) <= set(log.read_text().split())
