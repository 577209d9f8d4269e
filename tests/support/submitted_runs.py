"""Runs in a real store without processes: the test claims and settles."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from hypervisor.batches import submit
from hypervisor.queue.context import Context
from hypervisor.queue.lane import ClaimFilter
from hypervisor.queue.lease import AttemptResult, ClaimRequest, Worker, parse_token
from hypervisor.queue.task import NewTask
from hypervisor.resources.host import LocalHost
from hypervisor.runs.outputs.files import Outputs
from hypervisor.store.sqlite import SqliteDatabase
from tests.support.ledger import Ledger
from tests.support.parts import parts
from tests.support.specs import run_spec

NOW = 1_800_000_000_000
LEASE = 60_000
SPEC = run_spec("/", ("true",))
HERE = Worker("w-1", "worker-1", "here", "boot/1", 11, 100)
THERE = Worker("w-2", "worker-2", "there", "boot/2", 12, 100)
STRANGER = Worker("w-3", "ann", "here", "boot/1", 13, 100)


class FakeHost(LocalHost):
    def host(self):
        return "here"

    def boot(self):
        return "boot/1"


class FakeLauncher:
    """Records what it is asked to do."""

    log = "/data/supervisor.log"

    def __init__(self):
        self.pids: list[int | None] = [None]  # what successive checks for a supervisor return
        self.started = 0
        self.leaves = False
        self.kept: list[str] = []
        self.asked: list[set[int]] = []

    def supervisor(self):
        return self.pids.pop(0) if len(self.pids) > 1 else self.pids[0]

    def start_supervisor(self, stay=False):
        self.started += 1
        self.pids = [0, 0, 4711]  # it takes a moment to report its pid

    def wake(self):
        """Nothing to wake."""

    def is_leaving(self):
        return self.leaves

    def submitting(self):
        return nullcontext()

    def keep_environment(self, batch):
        self.kept.append(batch)
        return True

    def memory(self, workers):
        self.asked.append(set(workers))
        return dict.fromkeys(workers, 1 << 20)

    def read_status(self):
        return {"zone": "safe"}


@pytest.fixture
def hv(tmp_path):
    launcher: Any = FakeLauncher()
    given = parts(launcher=launcher, outputs=Outputs(str(tmp_path)))
    store = Ledger(SqliteDatabase(str(tmp_path / "x.db"), relaxed=True))
    context = Context(store, FakeHost(), "me", parts=given)
    yield context
    context.close()


def items(*names, **more):
    return [NewTask(name, key=name, **more) for name in names]


def run(hv, *names, spec=SPEC, name="b", now=NOW, **more):
    return submit.submit(hv, spec, items(*names, **more), name, now)


def counts(submitted):
    return tuple(submitted[2:6])  # added, retried, still open, already done


def claim(hv, worker=HERE, limit=1, now=NOW, batch=None):
    request = ClaimRequest(worker, limit, LEASE, ClaimFilter(batch=batch))
    return [parse_token(lease.token) for lease in hv.store.claim(request, now)]


def settle(hv, token, event, now=NOW, **more):
    reason = None if event == "complete" else event
    hv.store.settle([AttemptResult(token, event, reason=reason, **more)], now)


def at_work(hv, batch, worker=HERE):
    hv.store.register(worker, batch, NOW)
    return worker


def say(hv, token, text):
    with open(hv.outputs.prepare(token.task, token.attempt), "wb") as file:
        file.write(text)
