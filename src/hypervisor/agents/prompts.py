"""The prompts of agents: frames filled in for a batch, and the context from earlier work."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from hypervisor.agents.prompt import Surroundings, fill, quoted, render
from hypervisor.agents.prompt_findings import relevant_findings
from hypervisor.inputs.template import Item
from hypervisor.queue.lifecycle import DONE
from hypervisor.queue.result import text_of
from hypervisor.queue.sql import queries
from hypervisor.queue.task import Json, Task
from hypervisor.runs.spec import RunSpec, agent_of

if TYPE_CHECKING:
    from hypervisor.store.database import Database

WORKER, GO_ON, ANSWERED = "worker", "go-on", "answered"
CORRECT, PULL = "correct", "pull"
FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "prompts")  # built-in
MAX_RESULTS = 20
MAX_RESULT_LENGTH = 4_000


class Prompts:
    def __init__(self, spec: RunSpec, folder: str) -> None:
        self._spec, self._agent, self._folder = spec, agent_of(spec), folder

    def write(self, task: Task, item: Item, context: str = "", messages: str = "") -> str:
        around = self._around(context, messages)
        return render(self._agent.prompt, task, item, around, self._frame(WORKER))

    def go_on(self, task: Task, item: Item, context: str = "", messages: str = "") -> str:
        """The prompt of a resumed session, which knows the task."""
        return render(self._frame(GO_ON), task, item, self._around(context, messages))

    def answered(self, task: Task, item: Item, context: str, messages: str) -> str:
        """The prompt of a session that had blocked its task, which a person answered."""
        return render(self._frame(ANSWERED), task, item, self._around(context, messages))

    def correct(self, task: Task, mismatch: str) -> str:
        """The prompt of a session whose data did not match the schema."""
        return fill(self._frame(CORRECT), {"task": task.id, "mismatch": quoted(mismatch)}, {})

    def pull(self, caller: str) -> str:
        around = self._around("")._replace(caller=caller, pull=self._agent.pull)
        return render(self._agent.prompt, None, None, around, self._frame(PULL))

    def _around(self, context: str, messages: str = "") -> Surroundings:
        spec, agent = self._spec, self._agent
        folder = spec.cwd if spec.workspace == "project" else "."
        return Surroundings(
            folder,
            agent.permissions,
            context,
            messages,
            propose=spec.propose,
            schema=agent.schema,
        )

    def _frame(self, name: str) -> str:
        with open(os.path.join(self._folder, f"{name}.md"), encoding="utf-8") as file:
            return file.read()


def context_of(store: Database, task: Task, review: bool = False) -> str:
    """Results that the task builds on, findings on its branch and its last failure, as text. With
    `review`, findings of other branches only if they are reviewed."""
    detail = store.read(queries.detail, task.id)
    lines = []
    for name in detail.after[:MAX_RESULTS]:
        before = store.read(queries.task, name)
        if before.state == DONE and before.result is not None:
            lines.append(f"Result of {before.title} ({before.id}):\n{_shown(before.result)}")
    if findings := relevant_findings(store, task, review=review):
        lines.append(findings)
    ended = [
        attempt for attempt in detail.attempts if attempt.outcome == "failed" and attempt.reason
    ]
    if ended:
        lines.append(f"An earlier attempt at this task failed: {ended[-1].reason}")
    return "\n\n".join(lines)


def _shown(result: Json) -> str:
    text = text_of(result, "summary") or json.dumps(result, ensure_ascii=False)
    return text if len(text) <= MAX_RESULT_LENGTH else text[: MAX_RESULT_LENGTH - 1] + "…"
