"""The claims of an agent that claims tasks itself: its worker sees exactly these."""

from __future__ import annotations

import pytest

from hypervisor.queue.lease import AttemptResult, ClaimRequest, parse_token
from tests.support.given import ANN, BOB, LEASE, NOW


@pytest.fixture
def keeper(open_ledger):
    """The worker of an agent, in a process of its own; the agent's server is `ledger`."""
    made = open_ledger()
    made.register(ANN, "", NOW, agent="claude")
    return made


def tokens(leases):
    return [lease.token for lease in leases]


def take(ledger, worker, limit=1):
    return ledger.claim(ClaimRequest(worker, limit, LEASE), NOW)


def listed(store):
    return store.query("SELECT count(*) FROM agent_claims")[0][0][0]


def test_claims_that_another_process_makes_for_it_are_seen(keeper, ledger, add):
    add("a", "b", "c")
    held = take(ledger, ANN, 2)
    take(ledger, BOB)
    assert keeper.claims_of(ANN.id) == held
    assert keeper.claims_of(BOB.id) == []


def test_a_claim_that_has_ended_is_seen_no_longer(keeper, ledger, add, store):
    add("a", "b", "c")
    first, second = take(ledger, ANN, 2)
    ledger.settle([AttemptResult(parse_token(first.token), "release")], NOW)
    assert tokens(keeper.claims_of(ANN.id)) == [second.token]
    done = AttemptResult(parse_token(second.token), "complete")
    _, third = ledger.settle_and_claim([done], ClaimRequest(ANN, 1, LEASE), NOW)
    assert tokens(keeper.claims_of(ANN.id)) == tokens(third)
    assert listed(store) == 1


def test_the_claims_of_other_workers_are_not_listed(keeper, ledger, add, store):
    add("a")
    take(ledger, BOB)
    assert listed(store) == 0


def test_the_list_goes_with_the_worker(keeper, ledger, add, store):
    add("a")
    take(ledger, ANN)
    keeper.retire(ANN.id, NOW)
    assert listed(store) == 0
