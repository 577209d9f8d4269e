"""Projects in which `hv run --agent` runs the real CLIs against a scripted model on loopback."""

from __future__ import annotations

import json
import os
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import hypervisor
from hypervisor.queue.sql import agent_sessions, queries
from hypervisor.queue.sql import pauses as pauses_sql
from hypervisor.queue.task import TaskFilter
from tests.agents.real import clis
from tests.agents.real.model_server import ModelServer
from tests.support.ungoverned import UNGOVERNED
from tests.torture.fleet import Project, command_line, wait_for

KEY = "sk-planted-7d1f0c55e2a94b03"  # the value of all key variables; it must never appear anywhere
ITEM = r"item-[0-9]+"


class AgentProject(Project):
    """A project whose user has all agents installed, and keys for a model that is scripted. Without
    the gateway, limits and errors are read from the output of the programs."""

    def __init__(
        self, folder: Path, model: ModelServer, config: str = "", *, gateway: bool = False
    ) -> None:
        direct = "" if gateway else "[gateway]\nenabled = false\n"
        super().__init__(folder, UNGOVERNED + direct + config)
        self.model = model
        self.home = folder
        programs = clis.folder() / "node_modules/.bin"
        # The user's own tools are hidden: only the pinned programs are found.
        self.env |= {
            "PATH": f"{programs}:{os.environ.get('PATH', os.defpath)}",
            "ANTHROPIC_BASE_URL": model.url,
            "ANTHROPIC_API_KEY": KEY,
            "OPENAI_BASE_URL": f"{model.url}/v1",
            "OPENAI_API_KEY": KEY,
            "OPENAI_MODEL": "scripted-1",
            "CODEX_API_KEY": KEY,
            "GOOGLE_GEMINI_BASE_URL": model.url,
            "GEMINI_API_KEY": KEY,
            "GEMINI_MODEL": "gemini-2.5-pro",
            "COPILOT_PROVIDER_BASE_URL": f"{model.url}/v1",
            "COPILOT_PROVIDER_API_KEY": KEY,
            "COPILOT_MODEL": "scripted-1",
            "COPILOT_OFFLINE": "true",
        }
        self._configure_opencode()

    def _configure_opencode(self) -> None:
        """opencode knows its providers from a file of the user's."""
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": f"{self.model.url}/v1", "apiKey": "{env:OPENAI_API_KEY}"},
            "models": {"scripted-1": {"name": "scripted-1", "tool_call": True}},
        }
        config = {"model": "scripted/scripted-1", "provider": {"scripted": provider}}
        path = self.home / ".config/opencode/opencode.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(config))

    def work(self, agent: str, items: int, *args: str, seconds: float = 600) -> Any:
        """Runs a batch with this many items to its end."""
        return self.run(*self.words(agent, *args), items=self.items(items), seconds=seconds)

    def words(self, agent: str, *args: str) -> list[str]:
        return ["--agent", agent, "--quiet", "--prompt", "Look at the item.", *args]

    def items(self, count: int) -> list[str]:
        return [f"item-{number:03d}" for number in range(count)]

    # Looking

    def tasks(self) -> list[Any]:
        with closing(hypervisor.open(self.store)) as hv:
            return list(hv.store.read(queries.list_tasks, TaskFilter(), 10_000))

    def sessions(self) -> list[Any]:
        with closing(hypervisor.open(self.store)) as hv:
            return hv.store.read(agent_sessions.sessions, limit=10_000)

    def task(self, item: str) -> Any:
        (found,) = [task for task in self.tasks() if task.data["item"] == item]
        return found

    def pause(self, seconds: float = 300) -> Any:
        """The pause of the only batch, once there is one."""
        with closing(hypervisor.open(self.store)) as hv:
            wait_for(lambda: bool(hv.store.read(pauses_sql.pauses)), "a pause", seconds, self.story)
            (found,) = hv.store.read(pauses_sql.pauses)
            return found

    def agents(self) -> list[int]:
        """Processes of agents: those that run a program from the folder of the agents."""
        folder = str(clis.folder())
        found = ((process.pid, command_line(process.pid)) for process in self.processes())
        return [
            pid
            for pid, line in found
            if folder in line.split("\n")[0] + "".join(line.split("\n")[1:2])
        ]

    def attempts(self) -> Counter[str]:
        """The number of attempts by outcome."""
        (rows,) = self.query("SELECT outcome, count(*) FROM attempts GROUP BY outcome")
        return Counter({str(outcome): count for outcome, count in rows})

    def outcomes(self) -> Counter[str]:
        """The number of agent sessions by outcome."""
        return Counter(str(session.outcome) for session in self.sessions())

    def story(self) -> str:
        said = [
            f"{asked.key} {asked.wire} {asked.turn.replies} {asked.move}"[:500]
            for asked in self.model.asked[-8:]
        ]
        return "\n".join([super().story(), *said])


def all_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
