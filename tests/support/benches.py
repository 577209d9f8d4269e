"""A worker with a real store and a scripted runner."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Protocol, TypeVar

from hypervisor.agents.agent_settings import AgentSettings
from hypervisor.batches.pipeline_names import batches_of
from hypervisor.batches.reduce_input import item_for
from hypervisor.queue.attempt import Ended
from hypervisor.queue.context import Context
from hypervisor.queue.lease import Worker as Identity
from hypervisor.queue.sql import queries
from hypervisor.queue.task import NewTask, TaskFilter
from hypervisor.resources.host import LocalHost
from hypervisor.runs import sql as runs_sql
from hypervisor.runs.attempts import GLANCE
from hypervisor.runs.command_worker import command_worker
from hypervisor.runs.config import Settings
from hypervisor.runs.outputs.files import Outputs
from hypervisor.runs.retrying_store import patient
from hypervisor.runs.scratch import ScratchCopies
from hypervisor.runs.spec import TreeUsage, spec_data
from hypervisor.runs.worker import WorkerContext
from hypervisor.store.sqlite import SqliteDatabase
from tests.support.ledger import Ledger
from tests.support.parts import parts
from tests.support.specs import run_spec

WELL = Ended(0, None, 0.25, 12 << 20)
ME = Identity("me", "worker-1", "host", "boot", 1, 10)


class HasStore(Protocol):
    store: Ledger


Made = TypeVar("Made", bound=HasStore)


@contextmanager
def closed_after(make: Callable[..., Made]) -> Iterator[Callable[..., Made]]:
    """Creates objects that have a store, and closes all these stores at the end."""
    made: list[Made] = []

    def maker(**how: Any) -> Made:
        made.append(make(len(made), **how))
        return made[-1]

    try:
        yield maker
    finally:
        for each in made:
            each.store.close()


class Script:
    """A scripted runner: each item has the list of what `wait` returns. A callable

    is called, and its result returned. All calls are logged. The worker is asked to drain
    as soon as it has nothing to do.
    """

    def __init__(self, log):
        self.log = log
        self.asked = ""
        self.leader = 77
        self.fatal_error: str | None = None
        self.items: dict[str, list[Any]] = {}
        self.left = 0
        self.memory = 0
        self._answers: list[Any] = []

    def evidence(self):
        return ()

    def work_in(self, folder, env, root=""):
        self.folder = folder

    def start(self, item, token, output):
        self.log.append(f"start {item.text}")
        self._answers = list(self.items.get(item.text, [WELL]))
        if isinstance(self._answers[0], OSError):
            raise self._answers[0]

    def wait(self, seconds):
        if seconds == GLANCE and not isinstance(self._answers[0], Ended):
            return None
        answer = self._answers.pop(0)
        return answer() if callable(answer) else answer

    def stop(self, grace):
        self.log.append("stop")
        return Ended(None, 15, 0.5, 0)

    def clear(self, grace):
        return self.left

    def vital(self):
        return TreeUsage(0.0, self.memory, 0, 1)

    def exact_memory(self):
        return self.memory

    def settle_in(self):
        self.log.append("settle in")

    def pause(self, seconds):
        self.asked = self.asked or "drain"

    def close(self):
        self.log.append("close")


class Journal:
    def __init__(self, log):
        self.log = log

    def starting(self, token):
        self.log.append("journal start")

    def leader(self, pid, start):
        self.log.append(f"journal leader {pid}")

    def ended(self, verdict):
        self.log.append(f"journal {verdict.event}")

    def clear(self):
        self.log.append("journal clear")

    def remove(self):
        self.log.append("journal remove")


class Bench:
    """Scripted items, and the worker that runs them."""

    kind: type[Script] = Script

    def __init__(self, folder, settings=None, agent_settings=None, **spec):
        self.store = Ledger(SqliteDatabase(str(folder / "store.db"), relaxed=True))
        self.log: list[str] = []
        self.runner: Any = self.kind(self.log)
        self.journal: Any = Journal(self.log)
        self.settings = settings or Settings()
        self.outputs = Outputs(str(folder))
        self.spec = self.described(**spec)
        given = parts(
            launcher=None,
            outputs=self.outputs,
            places=SimpleNamespace(data=str(folder)),
            make_workspaces=ScratchCopies,
            settings=self.settings,
            agent_settings=agent_settings or AgentSettings(),
        )
        self.hv = Context(self.store, LocalHost(), "tester", parts=given)
        self.batch = self.store.write(
            runs_sql.declare, "b", spec_data(self.spec), "t", self.store.now()
        ).id
        self._next = self.store.now() - 1000

    def described(self, **spec):
        return run_spec("/", ("true",), **spec)

    def item(self, text, *answers, data=None, **more):
        """An item, and what `wait` will answer for it; by default, success."""
        if answers:
            self.runner.items[text] = list(answers)
        task = NewTask(text, type="run", data={"item": text, **(data or {})}, **more)
        self._next += 1  # tasks of one moment come in no order
        return self.store.add([task], "b", "t", self._next).ids[0]

    def context(self, journal=None, agent=""):
        return WorkerContext(
            patient(self.hv, self.runner),
            ME,
            self.batch,
            self.spec,
            self.runner,
            journal or self.journal,
            self.outputs,
            self.settings,
            agent,
        )

    def worker(self, journal=None):
        return command_worker(self.context(journal), item_for, batches_of)

    def work(self):
        self.worker().run()
        return self

    def outcomes(self):
        """The outcomes of each task's attempts, by title."""
        tasks = self.store.read(queries.list_tasks, TaskFilter(), 1000)
        return {
            t.title: [a.outcome for a in self.store.read(queries.detail, t.id).attempts]
            for t in tasks
        }

    def began(self):
        return [line.split()[1] for line in self.log if line.startswith("start ")]

    def events(self, *kinds):
        return [event for event in queries.events(self.store, 0, 10_000) if event.kind in kinds]
