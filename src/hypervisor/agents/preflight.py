"""Pre-flight for agents: which agent gets which tasks, which tasks no agent can do, and the
cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from hypervisor.batches.preflight_findings import Finding
from hypervisor.core.text import money_text
from hypervisor.inputs.items import task_for
from hypervisor.inputs.named_files import declared
from hypervisor.inputs.template import Item
from hypervisor.queue.agent_session import AgentSession
from hypervisor.queue.context import Context
from hypervisor.queue.sql import agent_sessions
from hypervisor.queue.task import NewTask
from hypervisor.runs.spec import AgentSpec

if TYPE_CHECKING:
    from hypervisor.agents.agents import Router
    from hypervisor.agents.gateway.access import CallWay

EXAMPLES = 10
REMEMBERED = 1_000  # sessions that an estimate is based on
WENT_WELL = ("completed", "settled")


def agent_task(item: Item, base: NewTask, occurrence: int = 1) -> NewTask:
    """The task of an item for an agent, with the capabilities that its file or row requires."""
    task = task_for(item, base, occurrence)
    own = declared(item, "requires")
    return task._replace(requires=tuple(dict.fromkeys((*task.requires, *own)))) if own else task


class AgentSurvey:
    """Call `add` for every task, then the other methods."""

    def __init__(self, router: Router, spec: AgentSpec, ways: Mapping[str, CallWay]) -> None:
        """`ways`: how each agent calls its model."""
        self._router, self._spec, self.ways = router, spec, ways
        self.routed: Counter[str] = Counter()  # by agent; "" for none
        self._lacking: list[str] = []

    def add(self, task: NewTask) -> None:
        chosen = self._router.agent(task)
        self.routed[chosen] += 1
        if not chosen and len(self._lacking) < EXAMPLES:
            self._lacking.append(f"{task.title} ({', '.join(self._router.lacking(task))})")

    def findings(self, hv: Context | None, to_do: int) -> Iterator[Finding]:
        """Problems first."""
        if count := self.routed[""]:
            verb = "requires" if count == 1 else "require"
            text = f"{count:,} {verb} something no agent here can do"
            yield Finding("nobody", count, text, tuple(self._lacking), True)
        cost, budget = self.cost(hv, to_do), self._spec.budget
        if cost is not None and budget is not None and cost > budget:
            text = (
                f"about {money_text(cost)} is expected, but the budget is {money_text(budget)}: "
                "the batch will be paused before it is finished"
            )
            yield Finding("budget", 1, text)

    def order(self) -> tuple[str, ...]:
        """How many tasks each agent gets, and how it calls its model."""
        parts = [f"{name} on {n:,}" for name, n in self.routed.most_common() if name]
        calls = [f"{name} {self.ways[name]}" for name in self.routed if name in self.ways]
        lines = (f"Agents: {', '.join(parts)}.", f"Model calls: {'; '.join(calls)}.")
        return lines[: 1 + bool(calls)] if parts else ()

    def cost(self, hv: Context | None, to_do: int) -> int | None:
        """The expected cost of this many tasks, based on earlier runs; None without any."""
        if hv is None or not hv.has_store or not to_do:
            return None
        before = hv.store.read(agent_sessions.sessions, limit=REMEMBERED)
        costs = {name: _cost_per_task(before, name) for name in self.routed if name}
        if not costs or any(cost is None for cost in costs.values()):
            return None
        total = sum((costs[name] or 0) * n for name, n in self.routed.items() if name)
        every = sum(n for name, n in self.routed.items() if name)
        return round(total / every * to_do)


def _cost_per_task(before: list[AgentSession], agent: str) -> float | None:
    """The cost of all sessions of an agent, divided by the tasks that have ended."""
    runs = [s for s in before if s.agent == agent and s.cost_micros is not None]
    ended = {s.task or s.id for s in runs if s.outcome in WENT_WELL}
    return sum(s.cost_micros or 0 for s in runs) / len(ended) if ended else None
