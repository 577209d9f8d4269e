"""Batches of stand-in agents in a project of their own (see tests/support/standin.py)."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hypervisor.queue.agent_session import AgentSession
from hypervisor.queue.sql import agent_sessions, queries
from hypervisor.queue.task import Task
from tests.support import standin
from tests.support.ungoverned import UNGOVERNED
from tests.torture.fleet import Ended, Project, wait_for

KEY = "sk-planted-0123456789abcdef"


class Agents:
    def __init__(self, project: Project, grace: str = "2s", **more: str) -> None:
        self.project = project
        folder = project.folder.parent / "standin"
        self.provider = folder / "provider"
        tables = standin.config(folder, grace, **more)
        project.configure(f'{UNGOVERNED}[run]\ngrace = "1s"\n{tables}')
        project.env["STANDIN_KEY"] = KEY

    def run(
        self, kind: str, *options: str, acts: Iterable[str] = (), seconds: float = 300
    ) -> Ended:
        """Until everything is done, or the batch waits for a person."""
        client = self.project.start("run", *self.words(kind, *options), items=numbered(acts))
        if "--retries" in options:
            self.project.try_again_now()
        ended = self.project.ended(client, seconds)
        self.wait_until_reported()
        return ended

    def start(self, kind: str, *options: str, acts: Iterable[str] = ()) -> None:
        words = self.words(kind, "--detach", *options)
        started = self.project.run(*words, items=numbered(acts))
        assert started.code == 0, started

    def words(self, kind: str, *options: str) -> list[str]:
        agent = f"fake-{kind}"
        return ["--agent", agent, "--name", "b", "--permissions", "full", *options]

    def notes(self, name: str) -> list[list[str]]:
        """The lines that the stand-ins wrote: time, pid, words."""
        path = self.provider / name
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def tasks(self) -> dict[str, Task]:
        """By the act they perform."""
        with self.project.open() as hv:
            return {_act(task.title): task for task in hv.list_tasks(limit=1000)}

    def sessions(self) -> list[AgentSession]:
        """The oldest first."""
        with self.project.open() as hv:
            return list(reversed(hv.store.read(agent_sessions.sessions, limit=1000)))

    def wait_until_reported(self) -> None:
        """An agent that has ended its claim itself may still print something."""
        story = self.project.story
        wait_for(lambda: all(run.outcome for run in self.sessions()), "the sessions", story=story)

    def attempts(self, task: str) -> list[Any]:
        with self.project.open() as hv:
            return list(hv.store.read(queries.detail, task).attempts)

    def homes(self) -> list[str]:
        folder = self.project.folder / ".hypervisor" / "agents"
        return sorted(each.name for each in folder.iterdir()) if folder.exists() else []

    def files(self) -> list[Path]:
        """All files of the project, except the notes of the stand-ins."""
        # os.walk skips folders that are removed at the same time.
        every = (
            Path(folder, name)
            for folder, _, names in os.walk(self.project.folder)
            for name in names
        )
        return [path for path in every if path.is_file()]


def numbered(acts: Iterable[str]) -> list[str]:
    """Items must differ: `act-ok`, `act-ok 2`, …"""
    seen: dict[str, int] = {}
    items = []
    for act in acts:
        seen[act] = seen.get(act, 0) + 1
        items.append(f"act-{act}" if seen[act] == 1 else f"act-{act} {seen[act]}")
    return items


def _act(title: str) -> str:
    return title.removeprefix("act-")
