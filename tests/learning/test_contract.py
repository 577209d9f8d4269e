"""What the ledger tells the learner, and keeps for it, the same on both databases."""

from __future__ import annotations

from hypervisor.agents.session import NewSession
from hypervisor.agents.stream_state import Tokens
from hypervisor.queue.history import EndedAttempt
from hypervisor.queue.lane import ClaimFilter
from hypervisor.queue.lease import AttemptResult, ClaimRequest, Usage, parse_token
from hypervisor.queue.task import NewTask
from tests.support.given import ANN, BOB, NOW


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


def test_settings_by_the_beginning_of_their_names(ledger, open_ledger):
    ledger.keep_settings({"learned %": "1", "learned %|a": "2", "learnedx": "3"})
    ledger.keep_settings({"learned %|a": "4"})
    assert open_ledger().settings_like("learned %") == {"learned %": "1", "learned %|a": "4"}
    assert ledger.settings_like("nothing") == {}
