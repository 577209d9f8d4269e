"""Shortcuts to the ledger's verbs, for the tests of every room."""

from __future__ import annotations

import pytest

from hypervisor.queue.lane import ClaimFilter
from hypervisor.queue.lease import AttemptResult, ClaimRequest, parse_token
from hypervisor.queue.task import NewTask
from tests.support.given import ANN, LEASE, NOW


@pytest.fixture
def add(ledger):
    """Adds tasks by their titles or as NewTask; returns their ids (one alone for one)."""

    def adder(*tasks, batch=None, at=NOW):
        new = [NewTask(task) if isinstance(task, str) else task for task in tasks]
        ids = ledger.add(new, batch, "me", at).ids
        return ids[0] if len(ids) == 1 else ids

    return adder


@pytest.fixture
def claim(ledger):
    """Claims one task and returns its token, or None if there is none."""

    def claimer(worker=ANN, at=NOW, **wanted):
        leases = ledger.claim(ClaimRequest(worker, 1, LEASE, ClaimFilter(**wanted)), at)
        return parse_token(leases[0].token) if leases else None

    return claimer


@pytest.fixture
def settle(ledger):
    def settler(token, event, at=NOW, **more):
        return ledger.settle([AttemptResult(token, event, **more)], at)[0]

    return settler
