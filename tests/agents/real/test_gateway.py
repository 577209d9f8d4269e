"""The real CLIs through the gateway: what is counted, where the key is, and how a budget ends a
task."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from hypervisor.resources.process_table import pids
from hypervisor.runs import sql as runs_sql
from hypervisor.runs.processes import tree
from tests.agents.real.fleet import ITEM, KEY, AgentProject, all_files
from tests.agents.real.moves import Move, Turn, call, result, shell
from tests.torture.fleet import wait_for

pytestmark = [pytest.mark.agents, pytest.mark.gateway]
AGENTS = ("claude", "codex", "gemini", "opencode", "qwen", "copilot")
DONE = [
    shell("env; cat $HOME/mcp.json $HOME/.gemini/settings.json $HOME/.codex/config.toml; true"),
    call("complete_task", {"summary": "done"}, tokens=(500, 30, 100)),
    result({"status": "completed", "summary": "done"}, tokens=(600, 10, 0)),
]
SPENT = """
SELECT sum(input_tokens), sum(output_tokens), sum(cached_tokens), sum(calls) FROM sessions
"""


class Sampler(threading.Thread):
    """Looks for the key in the environment and the command line of every process of an attempt, and
    in the homes of agents, for as long as they run."""

    def __init__(self, project: AgentProject) -> None:
        super().__init__(daemon=True)
        self._homes = project.folder / ".hypervisor" / "agents"
        self._runtime = str(project.runtime).encode()
        self.attempts: set[int] = set()
        self.places: set[str] = set()
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.05):
            for pid in pids():
                with suppress(OSError):
                    self._look_at(pid)
            for folder, _, names in os.walk(self._homes):
                for name in names:
                    with suppress(OSError):
                        if KEY.encode() in Path(folder, name).read_bytes():
                            self.places.add(f"{folder}/{name}")

    def _look_at(self, pid: int) -> None:
        given = Path(f"/proc/{pid}/environ").read_bytes()
        if f"{tree.MARK}=".encode() not in given or str(self._homes).encode() not in given:
            return
        self.attempts.add(pid)
        if KEY.encode() in given + Path(f"/proc/{pid}/cmdline").read_bytes():
            self.places.add(f"process {pid}")


@pytest.mark.parametrize("agent", AGENTS)
def test_all_is_counted_and_the_key_stays_outside(project: AgentProject, agent: str) -> None:
    project.model.script(ITEM, DONE)
    sampler = Sampler(project)
    sampler.start()
    words = ("--permissions", "full", "--workers", "2")
    ended = project.work(agent, 2, *words)
    sampler.over.set()
    sampler.join(30)
    assert ended.code == 0, ended.err + project.story()
    project.wait_until_left()
    assert project.states() == {"done": 2}
    dealt = project.model.dealt()
    read = dealt.input - (0 if agent == "claude" else dealt.cached)  # the others include these
    (rows,) = project.query(SPENT)
    assert rows[0][:3] == (read, dealt.output, dealt.cached)
    assert rows[0][3] >= len(project.model.asked)
    assert sampler.attempts and not sampler.places
    files = [path for path in all_files(project.home) if KEY.encode() in path.read_bytes()]
    assert not files and KEY not in ended.out + ended.err


@pytest.mark.parametrize("agent", AGENTS)
def test_a_budget_ends_the_task_at_the_next_call(project: AgentProject, agent: str) -> None:
    """Two tasks that would never end."""

    def moves(turn: Turn) -> Move:
        return shell(f"echo {len(turn.calls)}", tokens=(1000, 200, 0))

    project.model.script(ITEM, moves)
    words = ("--permissions", "full", "--workers", "2", "--task-tokens", "3500")
    ended = project.work(agent, 2, *words)
    assert "used up" in ended.out + ended.err, ended.err + project.story()
    project.wait_until_left()
    assert project.states() == {"failed": 2}
    reasons = {task.reason for task in project.tasks()}
    assert all("the token limit of the task is used up: 3,600 of 3,500" in r for r in reasons)
    assert len(project.model.asked) == 6, "three calls each"


@pytest.mark.long
@pytest.mark.parametrize("agent", AGENTS)
def test_eight_agents_that_would_use_ten_times_their_cap(project: AgentProject, agent: str) -> None:
    """No task exceeds its cap by more than a call; what was counted is what was dealt."""

    def moves(turn: Turn) -> Move:
        return shell(f"echo {len(turn.calls)}", tokens=(1000, 200, 0))

    project.model.script(ITEM, moves)
    words = ("--permissions", "full", "--workers", "8", "--task-tokens", "3500")
    project.work(agent, 8, *words, seconds=900)
    project.wait_until_left()
    assert project.states() == {"failed": 8}, project.story()
    (rows,) = project.query(
        "SELECT sum(input_tokens + output_tokens + cached_tokens) FROM sessions GROUP BY task"
    )
    assert [tokens for (tokens,) in rows] == [3600] * 8
    dealt = project.model.dealt()
    assert dealt.input + dealt.output == 8 * 3600


@pytest.mark.long
@pytest.mark.parametrize("agent", AGENTS)
def test_eight_agents_exceed_the_budget_of_their_batch_by_a_call_each(
    project: AgentProject, agent: str
) -> None:
    """Each of them would use ten times the budget of all."""

    def moves(turn: Turn) -> Move:
        return shell(f"echo {len(turn.calls)}", tokens=(1000, 200, 0))

    project.model.script(ITEM, moves)
    words = project.words(agent, "--permissions", "full", "--workers", "8", "--tokens", "20000")
    project.start("run", *words, items=project.items(8))
    assert "used up" in project.pause(900).reason
    # It is not the fault of the tasks.
    wait_for(lambda: project.states() == {"active": 8}, "tasks given back", 120, project.story)
    wait_for(lambda: not project.agents(), "the end of the agents", 120, project.story)
    dealt = project.model.dealt()
    spent = dealt.input + dealt.output + dealt.cached
    assert 20_000 <= spent <= 20_000 + 8 * 1200, project.story()
    (rows,) = project.query(
        "SELECT sum(input_tokens + output_tokens + cached_tokens) FROM sessions"
    )
    assert rows == [(spent,)]


@pytest.mark.parametrize("agent", AGENTS)
def test_without_its_worker_an_agent_cannot_spend(project: AgentProject, agent: str) -> None:
    """The supervisor is stopped, so that nobody ends the agent; some end without their worker."""

    def moves(turn: Turn) -> Move:
        return shell(f"echo {len(turn.calls)}", delay=0.5)

    project.model.script(ITEM, moves)
    words = project.words(agent, "--permissions", "full", "--workers", "1")
    project.start("run", *words, items=project.items(1))
    wait_for(lambda: len(project.model.asked) > 1, "two calls", 300, project.story)
    with project.open() as hv:
        supervisor = hv.launcher.supervisor()
        (worker,) = [w.worker.pid for w in hv.store.read(runs_sql.at_work, hv.probe.boot())]
    assert supervisor
    os.kill(supervisor, signal.SIGSTOP)
    try:
        os.kill(worker, signal.SIGKILL)
        calls = len(project.model.asked)
        refused = "SELECT refusal FROM sessions WHERE refused = 'claim'"
        wait_for(
            lambda: project.query(refused) != [[]] or not project.agents(),
            "a refusal",
            120,
            project.story,
        )
        assert project.query(refused) in ([[]], [[("the worker of this attempt is gone",)]])
        assert len(project.model.asked) <= calls + 1, "one may have been on its way"
    finally:
        os.kill(supervisor, signal.SIGCONT)
