"""The agent programs of a host and their private folders."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from hypervisor.agents.installed import Found, Preview, Probed
from hypervisor.agents.profile import AgentProfile
from hypervisor.inputs.template import Item
from hypervisor.queue.task import Task
from hypervisor.runs.spec import RunSpec


class AgentAdapter(Protocol):
    """The agent programs of this host."""

    def find(self, profile: AgentProfile) -> Found:
        """Where the program is and which version, or what is wrong."""
        ...

    def preview(self, profile: AgentProfile, spec: RunSpec, task: Task, item: Item) -> Preview:
        """How an attempt would be started, without starting or leaving anything."""
        ...

    def probe(self, profile: AgentProfile, spec: RunSpec, seconds: float) -> Probed:
        """One turn with the real program, in a home of its own."""
        ...


class AgentHomes(Protocol):
    """The private folders of agents: of a task by its id, of an agent that claims by itself by
    the pid and the start of its worker, joined by a dash."""

    def all(self) -> Iterator[str]: ...
    def remove(self, name: str) -> None: ...
