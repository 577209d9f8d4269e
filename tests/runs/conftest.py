"""Batches that are run, and their workers."""

from __future__ import annotations

import pytest

from tests.runs.declared_batches import RUNNER, SPEC
from tests.support.benches import closed_after
from tests.support.given import NOW
from tests.support.stage import Stage


@pytest.fixture
def run_batch(ledger, add):
    """Makes a batch that is run, with these tasks in it, in its order; returns its id."""

    def maker(*tasks, name="run", at=NOW):
        batch = ledger.declare(name, SPEC, "me", at)
        if tasks:
            add(*tasks, batch=name, at=at)
        return batch.id

    return maker


@pytest.fixture
def worker(ledger):
    """A registered worker of a batch."""

    def maker(batch, who=RUNNER, at=NOW):
        ledger.register(who, batch, at)
        return who

    return maker


@pytest.fixture
def make(tmp_path):
    with closed_after(lambda number, **how: Stage(tmp_path / f"{number}.db", **how)) as maker:
        yield maker


@pytest.fixture
def stage(make):
    return make()
