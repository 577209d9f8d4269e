"""Pipelines on a store, where the test itself claims and completes tasks."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from hypervisor.batches.files import BatchFiles
from hypervisor.batches.pipeline import PipelineRun, run_pattern
from hypervisor.batches.reduce_input import write_reduce_input
from hypervisor.inputs.items import item_of
from hypervisor.queue.claim import claim, complete, fail
from hypervisor.queue.context import Context
from hypervisor.queue.task import NewTask
from hypervisor.resources.host import LocalHost
from hypervisor.runs.outputs.files import Outputs
from hypervisor.runs.spec import RunSpec
from tests.support.parts import parts
from tests.support.specs import changed, run_spec

ONE = run_spec("/", ("one", "{}"))
TWO = run_spec("/", ("two", "{result}"))
THREE = run_spec("/", ("three", "{result}"))
LAST = run_spec("/", ("last", "{}"))


class FakeLauncher:
    """Starts nothing: the test does the work."""

    def supervisor(self):
        return 1

    def is_leaving(self):
        return False

    def wake(self):
        """Nothing to wake."""

    def submitting(self):
        return nullcontext()

    def keep_environment(self, batch):
        return True

    def read_status(self):
        return None


def host(ledger, folder: Path) -> Context:
    """The store as seen by a host with its files in that folder."""
    launcher: Any = FakeLauncher()
    outputs, files = Outputs(str(folder)), BatchFiles(str(folder))
    given = parts(launcher=launcher, outputs=outputs, batch_files=files)
    return Context(ledger, LocalHost(), "me", parts=given)


@pytest.fixture
def hv(ledger, tmp_path):
    return host(ledger, tmp_path)


@pytest.fixture
def other(ledger, tmp_path):
    """Another host that shares the store, but no file."""
    return host(ledger, tmp_path / "other")


def items(*names, **more):
    return [NewTask(name, key=name, data={"item": name}, **more) for name in names]


def submit(hv, names="abc", then=(TWO,), reduce: RunSpec | None = LAST, **more) -> PipelineRun:
    return run_pattern(hv, changed(ONE, **more), items(*names), "b", then, reduce=reduce)


def take(hv, whole, part, most=1):
    return claim(hv, "w", most, batch=whole.batches[part], pid=0)


def do(hv, whole, part, results=None, most=100):
    """Complete what can be claimed of a part; returns the titles. With None as the result, it
    fails."""
    leases = take(hv, whole, part, most)
    for lease in leases:
        result = (results or {}).get(lease.task.title, f"{lease.task.title}{part}")
        if result is None:
            fail(hv, lease.token, "broken", final=True)
        else:
            complete(hv, lease.token, result)
    return [lease.task.title for lease in leases]


def rows(hv, whole):
    """The input of the reduce; the reduce is completed."""
    (lease,) = take(hv, whole, -1)
    path = item_of(write_reduce_input(hv, lease).task).text
    assert path == item_of(lease.task).text
    found = [json.loads(line) for line in Path(path).read_text().splitlines()]
    complete(hv, lease.token, len(found))
    return found
