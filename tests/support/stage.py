"""A supervisor tick by tick, on a real store and a simulated host."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

from hypervisor.agents.agent_settings import AgentSettings
from hypervisor.app import make_supervisor
from hypervisor.queue.context import Context
from hypervisor.queue.lease import AttemptResult, ClaimRequest, Leftovers, Worker, parse_token
from hypervisor.queue.task import NewTask
from hypervisor.resources.governor import Decision, Reading
from hypervisor.resources.zones import SAFE, Load
from hypervisor.runs.config import Settings
from hypervisor.runs.spec import spec_data
from hypervisor.store.sqlite import SqliteDatabase
from tests.support.ledger import Ledger
from tests.support.parts import parts
from tests.support.specs import run_spec

BOOT = "this boot"
BEGIN = 1_800_000_000_000
TICK = 250
LEASE = 60_000


class Obedient:
    """A governor that allows as many workers as requested, up to `most`, and stops those it is
    given."""

    def __init__(self):
        self.most, self.stop, self.alone, self.news = 1_000, (), False, False
        self.strategy = "auto"
        self.reading = Reading(SAFE, 0, Load(0.25, 0.0, 1, 4))
        self.latest = Load(0.7, 0.7, 1, 4)  # too busy for more than one worker per core
        self.seen: list[Any] = []

    def tick(self, now, workers, running=()):
        return self.reading

    def decide(self, now, asked, limit, running, expected=None):
        self.seen.append(SimpleNamespace(asked=asked, limit=limit, running=running, next=expected))
        stop, self.stop = self.stop, ()
        return Decision(min(asked, limit, self.most), stop, "as told", self.news, self.alone)


class Host:
    """Probe, launcher and outputs in one: processes start and die as the test says."""

    def __init__(self, store):
        self.store = store
        self.alive: set[int] = set()
        self.started: list[tuple[int, str]] = []
        self.asked: list[tuple[int, str]] = []
        self.ended: list[tuple[int, int]] = []
        self.left: dict[int, Leftovers] = {}
        self.forgotten: list[int] = []
        self.recovered: list[tuple[str, int] | None] = []
        self.ends = True
        self.scrubbed: list[tuple[int, str, str]] = []
        self.using: dict[int, int] = {}
        self.bytes_left = 1 << 40
        self.words: list[dict[str, Any]] = []
        self.agents: dict[int, str] = {}
        self.keys: dict[str, str] = {}  # by batch

    # Called by the supervisor

    def recover(self, worker, running=None, ended=()):
        self.recovered.append(running)

    def room(self):
        return self.bytes_left

    def boot(self):
        return BOOT

    def host(self):
        return "host"

    def process_start(self, pid):
        return pid * 10

    def is_gone(self, worker):
        return None if worker.boot != BOOT else worker.pid not in self.alive

    def start_worker(self, batch, agent=""):
        pid = 100 + len(self.started)
        self.started.append((pid, batch))
        self.agents[pid] = agent
        self.alive.add(pid)
        return pid

    def environment(self, batch):
        return {"KEY": self.keys.get(batch, "")}

    def reap(self):
        ended, self.ended = self.ended, []
        return ended

    def start_cleaner(self):
        """Nothing is old enough here."""

    def signal(self, worker, what):
        self.asked.append((worker.pid, what))

    def memory(self, workers):
        return {pid: self.using.get(pid, 0) for pid in workers}

    def publish_status(self, word):
        self.words.append(word)

    def read_status(self):
        """None: no metrics are recorded."""

    def remains(self, worker):
        return self.left.get(worker.pid)

    def end_leftovers(self, worker, remains, held):
        return 1 if self.ends else None

    def clean_up_agent(self, worker, session):
        self.scrubbed.append((worker.pid, session.task, session.agent))

    def forget_leftovers(self, worker, remains):
        self.forgotten.append(worker.pid)
        del self.left[worker.pid]

    # What happens to workers

    def arrive(self, now, boot=BOOT):
        """All started workers register."""
        known = {each.worker.pid for each in self.store.at_work(BOOT)}
        for pid, batch in self.started:
            if pid in self.alive and pid not in known:
                self.store.register(worker_of(pid), batch, now + pid, self.agents[pid])

    def leave(self, pid):
        """A worker exits normally."""
        self.store.retire(worker_of(pid).id, BEGIN)
        self._end(pid, 0)

    def die(self, pid, code=-9):
        self._end(pid, code)

    def _end(self, pid, code):
        self.alive.remove(pid)
        self.ended.append((pid, code))


def worker_of(pid, boot=BOOT):
    return Worker(f"w{pid}", f"worker-{pid}", "host", boot, pid, pid * 10)


class Stage:
    """A supervisor on a host, with batches to run and a settable clock."""

    def __init__(
        self, path, settings=None, governor=None, cores=4, idle_ms=3000, agent_settings=None
    ):
        self.store = Ledger(SqliteDatabase(str(path), relaxed=True))
        self.host = Host(self.store)
        self.settings = settings or Settings()
        self.governor = governor or Obedient()
        self.now = BEGIN
        host: Any = self.host
        given = parts(
            launcher=host,
            outputs=host,
            places=SimpleNamespace(data=os.path.dirname(path)),
            settings=self.settings,
            agent_settings=agent_settings or AgentSettings(),
            clean_up_agent=self.host.clean_up_agent,
        )
        self.hv = Context(self.store, host, "tester", parts=given)
        self._cores, self._idle_ms = cores, idle_ms
        self.supervisor = self.another()

    def another(self):
        governor: Any = self.governor
        return make_supervisor(self.hv, self._idle_ms, governor, self._cores)

    def batch(self, name, tasks=1, priority="medium", type="run", **spec):
        batch = self.store.declare(name, spec_data(run_spec("/", ("true",), **spec)), "t", self.now)
        self.add(name, tasks, priority, type)
        return batch.id

    def add(self, name, tasks, priority="medium", type="run", **more) -> tuple[str, ...]:
        new = [NewTask("t", type=type, priority=priority, **more) for _ in range(tasks)]
        return self.store.add(new, name, "t", self.now).ids

    def tick(self, asked="", after=TICK):
        self.now += after
        return self.supervisor.tick(self.now, asked)

    def settle(self):
        """Tick until all started workers have registered."""
        self.tick()
        self.host.arrive(self.now)
        self.tick()

    def claim(self, pid, count=1):
        return self.store.claim(ClaimRequest(worker_of(pid), count, LEASE), self.now)

    def finish(self, leases):
        verdicts = [AttemptResult(parse_token(lease.token), "complete") for lease in leases]
        self.store.settle(verdicts, self.now)

    def started(self):
        """The batches for which workers were started since the last look."""
        batches = [batch for _, batch in self.host.started[self._looked :]]
        self._looked = len(self.host.started)
        return batches

    _looked = 0

    def outcomes(self):
        return {
            each.id: [a.outcome for a in self.store.detail(each.id).attempts]
            for each in self.store.list_tasks(_everything(), 1000)
        }


def _everything():
    from hypervisor.queue.task import TaskFilter

    return TaskFilter()
