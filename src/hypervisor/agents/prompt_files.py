"""The prompts of this program, filled in for one batch."""

from __future__ import annotations

import os

from hypervisor.agents.prompt import Surroundings, fill, quoted, render
from hypervisor.inputs.template import Item
from hypervisor.queue.task import Task
from hypervisor.runs.spec import RunSpec

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "prompts")  # built-in
WORKER, GO_ON, CORRECT, PULL = "worker", "go-on", "correct", "pull"


class Prompts:
    def __init__(self, spec: RunSpec, folder: str) -> None:
        self._spec, self._folder = spec, folder

    def write(self, task: Task, item: Item, context: str = "") -> str:
        return render(self._spec.prompt, task, item, self._around(context), self._frame(WORKER))

    def go_on(self, task: Task, item: Item, context: str = "") -> str:
        """The session knows the rest."""
        return render(self._frame(GO_ON), task, item, self._around(context))

    def correct(self, task: Task, mismatch: str) -> str:
        """For a session whose data did not fit the schema."""
        return fill(self._frame(CORRECT), {"task": task.id, "mismatch": quoted(mismatch)}, {})

    def pull(self, caller: str) -> str:
        around = self._around("")._replace(caller=caller, pull=self._spec.pull)
        return render(self._spec.prompt, None, None, around, self._frame(PULL))

    def _around(self, context: str) -> Surroundings:
        spec = self._spec
        folder = "." if spec.workspace == "scratch" else spec.cwd
        return Surroundings(folder, spec.permissions, context, spec.propose, schema=spec.schema)

    def _frame(self, name: str) -> str:
        with open(os.path.join(self._folder, f"{name}.md"), encoding="utf-8") as file:
            return file.read()
