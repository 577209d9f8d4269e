"""Proposals under a claim: stored one by one, and added to the result by the transaction that ends
the claim."""

from __future__ import annotations

import json

import pytest

from hypervisor.core.errors import InvalidInput, LeaseLost
from hypervisor.queue.lease import AttemptResult, ClaimRequest
from hypervisor.queue.sql.proposals import MAX_SIZE
from tests.support.given import ANN, LEASE, NOW
from tests.support.proposing import left_over


def delete(path):
    return {"do": "delete", "path": path}


@pytest.fixture
def propose(ledger):
    def proposer(token, *paths):
        return [ledger.propose(token, delete(path), LEASE, NOW) for path in paths]

    return proposer


def result_of(ledger, token):
    return ledger.task(token.task).result


def test_they_come_before_the_actions_of_the_result_in_their_order(
    ledger, add, claim, settle, propose
):
    add("a")
    token = claim()
    assert propose(token, "1", "2") == [1, 2]
    settle(token, "complete", result={"n": 1, "actions": [delete("3")]}, proposals=True)
    expected = {"n": 1, "actions": [delete("1"), delete("2"), delete("3")]}
    assert (result_of(ledger, token), left_over(ledger)) == (expected, [])


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (None, {}),
        ("text", {"result": "text"}),
        ({"actions": delete("own")}, {"actions": [delete("own")]}),
    ],
)
def test_any_result_can_take_them(ledger, add, claim, settle, propose, result, expected):
    add("a")
    token = claim()
    propose(token, "1")
    settle(token, "complete", result=result, proposals=True)
    actions = [delete("1"), *expected.get("actions", [])]
    assert result_of(ledger, token) == {**expected, "actions": actions}


def test_they_are_added_also_when_the_next_task_is_taken_in_the_same_turn(
    ledger, add, claim, propose
):
    add("a", "b")
    token = claim()
    propose(token, "1")
    verdict = AttemptResult(token, "complete", {"n": 1}, proposals=True)
    settled, leases = ledger.settle_and_claim([verdict], ClaimRequest(ANN, 1, LEASE), NOW)
    assert (settled[0].state, len(leases)) == ("done", 1)
    assert result_of(ledger, token) == {"n": 1, "actions": [delete("1")]}


def test_a_claim_that_has_ended_proposes_nothing(ledger, add, claim, settle, propose):
    add("a")
    token = claim()
    settle(token, "release")
    with pytest.raises(LeaseLost):
        propose(token, "1")
    assert left_over(ledger) == []


def test_the_next_attempt_does_not_inherit_them(ledger, add, claim, settle, propose):
    add("a")
    token = claim()
    propose(token, "1")
    settle(token, "release")
    again = claim()
    settle(again, "complete", result={"n": 2}, proposals=True)
    assert result_of(ledger, again) == {"n": 2}
    ledger.forget_proposals(token)
    assert left_over(ledger) == []


def test_too_much_is_refused_and_what_was_kept_stays(ledger, add, claim, settle, propose):
    add("a")
    token = claim()
    propose(token, "1")
    with pytest.raises(InvalidInput, match="too many"):
        propose(token, "x" * MAX_SIZE)
    assert propose(token, "2") == [2]


def test_those_that_an_earlier_version_kept_in_the_settings_are_added_too(
    ledger, add, claim, settle, propose
):
    add("a")
    token = claim()
    ledger.set(f"proposals {token.task}.{token.attempt}", json.dumps([delete("1"), delete("2")]))
    assert propose(token, "3") == [3]
    settle(token, "complete", proposals=True)
    assert result_of(ledger, token) == {"actions": [delete("1"), delete("2"), delete("3")]}
    assert ledger.setting(f"proposals {token.task}.{token.attempt}") is None


def test_completing_twice_gives_the_first_answer_and_the_same_result(
    ledger, add, claim, settle, propose
):
    add("a")
    token = claim()
    propose(token, "1")
    settle(token, "complete", proposals=True)
    assert settle(token, "complete", result={"n": 2}, proposals=True).repeated
    assert result_of(ledger, token) == {"actions": [delete("1")]}
