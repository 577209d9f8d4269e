"""What `--permissions edit` lets the real CLIs do, as the documentation says."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from tests.agents.real.fleet import KEY, AgentProject
from tests.agents.real.moves import Move, Turn, call, result, shell

pytestmark = pytest.mark.agents
DONE = result({"status": "completed", "summary": "done"})
CHANGE = {"old_string": "one", "new_string": "two"}
LOOK = """
echo inside > inside.txt
echo private > "$TMPDIR/private" && echo private-ok
echo outside > {outside} && echo outside-ok
env | grep -i key
for file in $(find /proc -maxdepth 2 -name environ); do tr '\\0' '\\n' < $file | grep -i key; done
ls "$HOME/.codex/shell_snapshots"
true
"""


def test_codex_edit_writes_in_the_folder_and_its_commands_see_no_key(project: AgentProject) -> None:
    outside = Path("/tmp") / f"hv-{uuid.uuid4().hex}"
    answers: list[str] = []

    def moves(turn: Turn) -> Move:
        if not turn.calls:
            return shell(LOOK.format(outside=outside))
        answers.append(turn.last)
        return DONE

    project.model.script("item-1", moves)
    try:
        project.run(*project.words("codex"), items=["item-1"], seconds=600)
        assert not outside.exists(), answers
    finally:
        outside.unlink(missing_ok=True)
    assert (project.folder / "inside.txt").read_text() == "inside\n", answers
    assert "private-ok" in answers[0] and "outside-ok" not in answers[0]
    assert KEY not in answers[0]


def test_claude_edit_changes_files_and_runs_no_command_that_does(project: AgentProject) -> None:
    folder = project.folder
    (folder / "build").mkdir()
    (folder / "build" / "a.o").write_text("kept\n")
    (folder / "a.txt").write_text("one\n")
    outside = project.home / "outside.txt"
    answers: list[str] = []
    steps = [
        call("Write", {"file_path": str(folder / "new.txt"), "content": "written\n"}),
        call("Read", {"file_path": str(folder / "a.txt")}),
        call("Edit", {"file_path": str(folder / "a.txt"), **CHANGE}),
        call("Write", {"file_path": str(outside), "content": "outside\n"}),
        shell("rm -rf ./build"),
        shell("mkdir made"),
        shell("mv a.txt moved.txt"),
        shell("sed -i s/two/three/ a.txt"),
    ]

    def moves(turn: Turn) -> Move:
        answers.append(turn.last)
        return steps[len(turn.calls)] if len(turn.calls) < len(steps) else DONE

    project.model.script("item-1", moves)
    project.run(*project.words("claude"), items=["item-1"], seconds=600)
    assert (folder / "new.txt").exists(), answers
    assert (folder / "a.txt").read_text() == "two\n", answers
    assert (folder / "build" / "a.o").exists(), answers
    assert not (folder / "made").exists() and not (folder / "moved.txt").exists(), answers
    assert not outside.exists(), answers
