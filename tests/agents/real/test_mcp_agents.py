"""Real agents that use the MCP server as their users configured it."""

from __future__ import annotations

import shlex
import signal
import subprocess

import pytest

from hypervisor import NewTask
from tests.agents.real import clis
from tests.agents.real.moves import Move, Turn, call, hang, number_in, say
from tests.mcp.conftest import PROGRAM, Place, wait_for
from tests.support.mcp_servers import end_mcp_servers

pytestmark = pytest.mark.agents
AGENTS = pytest.mark.parametrize("agent", ("claude", "codex", "gemini"))
TOKEN = r"token\\*\"\s*:\s*\\*\"([0-9a-z.]+)"
PROMPT = "Work off the queue"


class Session:
    """An agent with a scripted model and `hv mcp` as its server."""

    def __init__(self, place, model, agent, monkeypatch):
        server = place.folder / "server"
        settings = "\n".join(f"export {k}='{v}'" for k, v in place.env.items() if k != "PATH")
        words = shlex.join([PROGRAM[0], "-I", "-c", PROGRAM[-1], "mcp"])
        server.write_text(f"#!/bin/sh\n{settings}\nexec {words}\n")
        server.chmod(0o755)
        monkeypatch.setattr(clis, "_server", lambda asking: {"command": str(server), "args": []})
        asking = clis.Asking(model.url, place.folder / "agent", PROMPT, mode="full")
        self._line, self._place = clis.line(agent, asking), place

    def start(self):
        argv, env, stdin = self._line
        transcript = (self._place.folder / "transcript").open("wb")
        with transcript:
            made = subprocess.Popen(
                argv,
                env=env,
                cwd=self._place.folder,
                stdin=subprocess.PIPE,
                stdout=transcript,
                stderr=subprocess.STDOUT,
            )
        assert made.stdin is not None
        made.stdin.write(stdin.encode())
        made.stdin.close()
        return made

    def transcript(self):
        return (self._place.folder / "transcript").read_text(errors="replace")


@pytest.fixture
def place(tmp_path):
    yield Place(tmp_path)
    end_mcp_servers(tmp_path)


@AGENTS
def test_an_agent_claims_leaves_evidence_completes_and_is_refused(place, model, agent, monkeypatch):
    def moves(turn: Turn) -> Move:
        claims = [each for each in turn.calls if each.name.endswith("claim_next_task")]
        token = number_in(TOKEN, claims[0].answer or "") if claims else ""
        steps = [
            call("claim_next_task", {"caller": agent}),
            call("append_receipt", {"text": "looked at it", "token": token}),
            call("complete_task", {"summary": "seen", "token": token}),
            call("block_task", {"reason": "too late", "token": token}),
            say("COMPLETED: seen"),
        ]
        return steps[min(len(turn.calls), len(steps) - 1)]

    model.script(PROMPT, moves)
    session = Session(place, model, agent, monkeypatch)
    with place.open() as hv:
        task = hv.add([NewTask("Look")]).ids[0]
        assert session.start().wait(180) == 0, session.transcript()
        shown = hv.show(task)
        assert shown.detail.task.state == "done", session.transcript()
        assert shown.detail.task.result == {"summary": "seen"}
        assert [line.text for line in shown.receipts] == ["looked at it"]
        assert shown.detail.attempts[0].worker.startswith(f"{agent}@")
    assert "the claim has ended: it was done" in session.transcript()


@AGENTS
def test_a_killed_agents_task_is_back_at_once(place, model, agent, monkeypatch):
    model.script(PROMPT, [call("claim_next_task", {"caller": agent}), hang()])
    session = Session(place, model, agent, monkeypatch)
    with place.open() as hv:
        task = hv.add([NewTask("Look")]).ids[0]
        running = session.start()
        wait_for(lambda: any(asked.move.hang for asked in model.asked))
        assert hv.show(task).detail.task.state == "in_progress", session.transcript()
        running.send_signal(signal.SIGKILL)
        running.wait()
        wait_for(lambda: hv.show(task).detail.task.state == "active")
        assert hv.show(task).detail.task.crashes == 0
