"""Two concurrent calls about one claim: the second one sees what the first one did."""

from __future__ import annotations

import threading
import time
from typing import cast

import pytest

from hypervisor.core.errors import LeaseLost
from hypervisor.hive.finding import NewFinding
from hypervisor.queue.lease import AttemptResult, EndEvent, Token
from hypervisor.queue.sql import settlement
from tests.support.given import LEASE, NOW

WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted"
DEADLINE = 180


@pytest.fixture
def behind(store, open_ledger):
    """Ends a claim, and while that is not committed yet lets another connection do something."""
    first, second = open_ledger(), open_ledger()

    def run(token: Token, event: str, then):
        answers: list[object] = []

        def act():
            try:
                answers.append(then(second))
            except Exception as error:
                answers.append(error)

        other = threading.Thread(target=act)

        def work(session):
            settlement.settle(session, [AttemptResult(token, cast(EndEvent, event), {"n": 1})], NOW)
            other.start()
            wait_until_blocked(store)

        first._db.write(work)
        other.join(DEADLINE)
        return answers[0]

    return run


def wait_until_blocked(store):
    """On SQLite the second one has not read anything before it may write."""
    deadline = time.monotonic() + DEADLINE
    while store.kind == "postgres" and store.query(WAITING)[0][0][0] == 0:
        assert time.monotonic() < deadline, "the second call does not wait"
        time.sleep(0.01)


def complete(token):
    return lambda ledger: ledger.settle([AttemptResult(token, "complete")], NOW)[0]


def test_completing_at_once_gives_the_first_answer_twice(behind, ledger, add, claim):
    add("a")
    token = claim()
    again = behind(token, "complete", complete(token))
    assert (again.outcome, again.repeated, again.lost) == ("done", True, None)
    assert ledger.task(token.task).result == {"n": 1}


def test_completing_what_is_just_released_is_lost(behind, ledger, add, claim):
    add("a")
    token = claim()
    answer = behind(token, "release", complete(token))
    assert answer.lost == "it was released"
    assert ledger.task(token.task).state == "active"


def test_nothing_is_set_under_a_claim_that_is_just_ending(behind, ledger, add, claim):
    add("a")
    token = claim()
    assert behind(token, "complete", lambda other: other.set_reduce_input(token, "1")) is False
    assert ledger.reduce_input(token.task) is None


@pytest.mark.parametrize(
    "act",
    [
        lambda ledger, token: ledger.append_under_claim(token, ["too late"], NOW),
        lambda ledger, token: ledger.remember(NewFinding("too late"), "me", token, now=NOW),
        lambda ledger, token: ledger.propose(token, {"do": "delete", "path": "x"}, LEASE, NOW),
    ],
    ids=["receipt", "finding", "proposal"],
)
def test_nothing_is_written_under_a_claim_that_is_just_ending(behind, add, claim, act):
    add("a")
    token = claim()
    answer = behind(token, "complete", lambda other: act(other, token))
    assert isinstance(answer, LeaseLost), answer
