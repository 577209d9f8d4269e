"""What is stored about a real agent's attempt: figures, refused tools, the last line, no key."""

from __future__ import annotations

from hashlib import sha256

import pytest

from tests.agents.real.fleet import KEY, AgentProject, all_files
from tests.agents.real.moves import Move, Turn, call, hang, result, say, shell
from tests.torture.fleet import wait_for

pytestmark = pytest.mark.agents
MAIN = ("claude", "codex", "gemini")
# 5 MB in which all lines differ: gemini stops when it takes repeated text for a loop.
LONG = "".join(f"{sha256(str(n).encode()).hexdigest()}\n" for n in range(80_000))
DONE = result({"status": "completed", "summary": "done"})


def test_a_refused_tool_and_the_cost_are_shown_though_it_completed_over_mcp(
    project: AgentProject,
) -> None:
    read = call("Read", {"file_path": str(project.folder / "items0")})
    moves = [shell("touch forbidden"), read, call("complete_task", {"summary": "done"}), DONE]
    project.model.script("item-1", moves)
    words = project.words("claude", "--permissions", "read-only")
    ended = project.run(*words, items=["item-1"], seconds=600)
    assert ended.code == 0 and "CPU 0.0 s" not in ended.out, ended
    (session,) = project.sessions()
    assert (session.outcome, session.denied) == ("settled", ("Bash",)), project.story()
    shown = project.ended(project.start("show", project.task("item-1").id))
    assert "refused tools: Bash" in shown.out
    (rows,) = project.query("SELECT outcome, cpu_ms, peak_kb FROM attempts")
    ((outcome, cpu, peak),) = rows
    assert outcome == "done" and cpu > 0 and peak > 0


def test_claude_does_not_work_on_after_it_blocked_its_task(project: AgentProject) -> None:
    def moves(turn: Turn) -> Move:
        if not turn.calls:
            return call("block_task", {"reason": "no key"})
        number = len(turn.calls)
        return call("Write", {"file_path": str(project.folder / f"{number}.txt"), "content": "x"})

    project.model.script("item-1", moves)
    project.run(*project.words("claude", "--detach"), items=["item-1"])
    blocked = lambda: project.states() == {"blocked": 1}  # noqa: E731
    wait_for(blocked, "the verdict", 300, project.story)
    over = lambda: [each.outcome for each in project.sessions()] == ["blocked"]  # noqa: E731
    wait_for(over, "the end of the agent", 45, project.story)
    assert not project.agents()


@pytest.mark.parametrize("agent", MAIN)
def test_the_last_line_of_an_answer_of_5_mb_counts(project: AgentProject, agent: str) -> None:
    project.model.script("item-1", [say(f"{LONG}COMPLETED: read it")])
    project.run(*project.words(agent), items=["item-1"], seconds=600)
    task = project.task("item-1")
    if agent == "gemini":  # at its end it drops what is not in the pipe yet: 1 MB is
        assert task.state == "failed" and "without a final report" in task.reason
        return
    assert (task.state, task.result) == ("done", {"summary": "read it"}), project.story()


def test_codex_leaves_no_key_on_the_disk_while_it_runs(project: AgentProject) -> None:
    project.model.script("item-1", [shell("echo hello"), hang()])
    project.run(*project.words("codex", "--detach"), items=["item-1"])
    called = lambda: any(asked.turn.calls for asked in project.model.asked)  # noqa: E731
    wait_for(called, "its command", 300, project.story)
    assert [path for path in all_files(project.folder) if KEY.encode() in path.read_bytes()] == []
