"""Pre-flight for agents: who would work on what, what nobody can do, and what it may cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from hypervisor.agents.agents import Router
from hypervisor.agents.session import AgentSession
from hypervisor.agents.sql import sessions
from hypervisor.batches.preflight_findings import Finding
from hypervisor.core.text import amount_text
from hypervisor.inputs.items import task_for
from hypervisor.inputs.named_files import declared
from hypervisor.inputs.template import Item
from hypervisor.queue.context import Context
from hypervisor.queue.task import NewTask
from hypervisor.runs.spec import RunSpec

EXAMPLES = 10
REMEMBERED = 1_000  # sessions that an estimate looks back on
WENT_WELL = ("completed", "settled")


def agent_task(item: Item, base: NewTask, occurrence: int = 1) -> NewTask:
    """The task of an item for an agent: it also requires what its own file or row says."""
    task = task_for(item, base, occurrence)
    own = declared(item, "requires")
    return task._replace(requires=tuple(dict.fromkeys((*task.requires, *own)))) if own else task


class AgentSurvey:
    """Call `add` for every task, then ask."""

    def __init__(self, router: Router, spec: RunSpec) -> None:
        self._router, self._spec = router, spec
        self.routed: Counter[str] = Counter()  # by agent; "" is nobody
        self._lacking: list[str] = []

    def add(self, task: NewTask) -> None:
        chosen = self._router.agent(task)
        self.routed[chosen] += 1
        if not chosen and len(self._lacking) < EXAMPLES:
            self._lacking.append(f"{task.title} ({', '.join(self._router.lacking(task))})")

    def findings(self, hv: Context | None, to_do: int) -> Iterator[Finding]:
        """What stands in the way first."""
        if count := self.routed[""]:
            said = (
                "1 needs what no agent here can do"
                if count == 1
                else (f"{count:,} need what no agent here can do")
            )
            yield Finding("nobody", count, said, tuple(self._lacking), True)
        cost, budget = self.cost(hv, to_do), self._spec.budget
        if cost is not None and budget is not None and cost > budget:
            said = (
                f"about {cost / 1e6:.2f} is expected, the budget is {amount_text(budget)}: "
                "the batch will be paused before its end"
            )
            yield Finding("budget", 1, said)

    def order(self) -> tuple[str, ...]:
        """Who works on how many."""
        told = [f"{name} on {n:,}" for name, n in self.routed.most_common() if name]
        return (f"Agents: {', '.join(told)}.",) if told else ()

    def cost(self, hv: Context | None, to_do: int) -> int | None:
        """What so many tasks will cost, as it went before; None where nothing like it has run."""
        if hv is None or not hv.has_store or not to_do:
            return None
        before = hv.store.read(sessions.sessions, limit=REMEMBERED)
        each = {name: _each(before, name) for name in self.routed if name}
        if not each or any(cost is None for cost in each.values()):
            return None
        total = sum((each[name] or 0) * n for name, n in self.routed.items() if name)
        every = sum(n for name, n in self.routed.items() if name)
        return round(total / every * to_do)


def _each(before: list[AgentSession], agent: str) -> float | None:
    """What a task cost this agent: all its runs, over the tasks that came to an end."""
    runs = [s for s in before if s.agent == agent and s.cost_micros is not None]
    ended = {s.task or s.id for s in runs if s.outcome in WENT_WELL}
    return sum(s.cost_micros or 0 for s in runs) / len(ended) if ended else None
