"""What the ledger returns to and stores for the learner, on both databases."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

from hypervisor.learning import sql
from hypervisor.learning.record import Record
from hypervisor.queue.agent_session import NewSession, Tokens
from hypervisor.queue.context import Context
from hypervisor.queue.history import EndedAttempt
from hypervisor.queue.lane import ClaimFilter
from hypervisor.queue.lease import AttemptResult, ClaimRequest, Usage, parse_token
from hypervisor.queue.task import NewTask
from tests.support.given import ANN, BOB, NOW

if TYPE_CHECKING:
    from hypervisor.resources.host import LocalHost


def test_ended_attempts_with_what_they_took(ledger):
    batch = ledger.declare("b", {"cwd": "/"}, "me", NOW)
    ledger.add([NewTask("x", type="review"), NewTask("y", type="review")], "b", "me", NOW)
    ledger.register(ANN, batch.id, NOW, "claude")
    wanted = ClaimRequest(ANN, 2, wanted=ClaimFilter(batch=batch.id))
    first, second = (parse_token(each.token) for each in ledger.claim(wanted, NOW + 5))
    made = ledger.open_session(
        NewSession("claude", "a:1", batch.id, ANN.id, first.task, first.attempt), NOW + 5
    )
    ledger.close_session(made, "quota", Tokens(70, 30, 9), 1_200, False, 2, NOW + 8)
    ledger.settle([AttemptResult(first, "complete", usage=Usage(0, 40, 512, 9))], NOW + 9)
    both = [(first.task, 1), (second.task, 1), (first.task, 2)]
    assert ledger.ended_attempts(both) == [
        EndedAttempt(
            first.task, 1, "done", 40, 512, "review", NOW, ANN.host, "claude", 100, 1_200, True
        )
    ]
    assert ledger.ended_attempts([]) == []


def test_what_nobody_of_ours_ran_is_left_out(ledger):
    ledger.add([NewTask("x")], "b", "me", NOW)
    [lease] = ledger.claim(ClaimRequest(BOB), NOW)
    token = parse_token(lease.token)
    ledger.settle([AttemptResult(token, "complete")], NOW + 9)
    assert ledger.ended_attempts([(token.task, 1)]) == []


def test_records_and_the_last_event_seen_are_kept_by_host(ledger, open_ledger):
    ledger.write(sql.save, "ant", 7, {"run": Record("run", done=1), "x": Record("x")})
    ledger.write(sql.save, "ant", 9, {"run": Record("run", done=2)})
    hv = Context(open_ledger(), cast("LocalHost", None), "me")
    records = {"run": Record("run", done=2), "x": Record("x")}
    assert (sql.seen_up_to(hv, "ant"), sql.records(hv, "ant")) == (9, records)
    assert (sql.seen_up_to(hv, "bee"), sql.records(hv, "bee")) == (None, {})


def test_priors_are_kept_by_type(ledger, open_ledger):
    for benefit in (0.1, 0.2):
        ledger.write(sql.set_prior, "run", json.dumps({"benefit": benefit}))
    hv = Context(open_ledger(), cast("LocalHost", None), "me")
    assert (sql.prior_of(hv, "run"), sql.prior_of(hv, "x")) == ({"benefit": 0.2}, None)
    assert ledger.read(sql.priors) == {"run": {"benefit": 0.2}}
