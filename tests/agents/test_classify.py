"""The outcome of a run, from evidence, the most reliable first."""

from typing import get_args

import pytest

from hypervisor.agents import stream_state as kinds
from hypervisor.agents.classify import BY_ERROR, classify, cooldown_error
from hypervisor.agents.gateway.admission import Refusal
from hypervisor.agents.outcome import OUTCOMES, Action, OutcomeName
from hypervisor.agents.stream_state import StreamError, StreamState
from hypervisor.queue.attempt import Ended

WELL, BADLY, KILLED = Ended(0, None, 0, 0), Ended(1, None, 0, 0), Ended(None, 15, 0, 0)
CLOSED = StreamState(ended=True, ok=True)  # its last message reported success


def trouble(kind, **more):
    return CLOSED._replace(ok=False, error=StreamError(kind, "the words of the provider", **more))


def said(text):
    return CLOSED._replace(message=text, tools=1)


EVERY = [
    # stream state, how the program ended, the ledger → outcome, what the worker does
    (said("COMPLETED: fine"), WELL, "done", "settled", Action.NOTHING),
    (said("COMPLETED: fine"), WELL, None, "completed", Action.COMPLETE),
    (said("BLOCKED: no key"), WELL, None, "blocked", Action.BLOCK),
    (said("FAILED: no way"), WELL, None, "failed", Action.FAIL),
    (said("I could do that, if you like."), WELL, None, "nothing_done", Action.RETRY),
    (CLOSED._replace(denied=("Bash",)), WELL, None, "tools_denied", Action.BLOCK),
    (CLOSED._replace(mcp="dead", tools=1), WELL, None, "mcp_dead", Action.RETRY),
    (trouble(kinds.STREAM), WELL, None, "stream_error", Action.RELEASE),
    (trouble(kinds.QUOTA, status=429), BADLY, None, "quota", Action.RELEASE),
    (trouble(kinds.OVERLOAD, status=529), BADLY, None, "overload", Action.RELEASE),
    (trouble(kinds.AUTH, status=401), BADLY, None, "auth", Action.GIVE_UP),
    (trouble(kinds.BILLING, status=402), BADLY, None, "billing", Action.GIVE_UP),
    (trouble(kinds.ACCESS, status=403), BADLY, None, "no_access", Action.GIVE_UP),
    (trouble(kinds.REQUEST, status=400), BADLY, None, "bad_request", Action.FAIL),
    (trouble(kinds.SERVER, status=500), BADLY, None, "server_error", Action.RELEASE),
    (trouble(kinds.NETWORK), BADLY, None, "network", Action.RELEASE),
    (trouble(kinds.TURNS), BADLY, None, "max_turns", Action.FAIL),
    (trouble(kinds.BUDGET), BADLY, None, "over_budget", Action.FAIL),
    (trouble(kinds.RESUME), BADLY, None, "lost_session", Action.RELEASE),
    (StreamState(tools=2), KILLED, None, "crashed", Action.RETRY),
]


@pytest.mark.parametrize("state, ended, ledger, name, action", EVERY, ids=[e[3] for e in EVERY])
def test_every_outcome(state, ended, ledger, name, action):
    outcome = classify(state, ended, ledger)
    assert (outcome.name, outcome.action) == (name, action)
    assert outcome.action == OUTCOMES[name][0]
    assert outcome.reason


def test_hung():
    assert classify(CLOSED, KILLED, None, hung=True)[:2] == ("hung", Action.RETRY)
    assert classify(said("COMPLETED"), KILLED, None, hung=True).name == "completed"
    named = {each[3] for each in EVERY} | {
        "stopped",
        "attached",
        "hung",
        "lost_claim",
        "misfit",
        "noted",
    }  # by the worker
    assert named == set(OUTCOMES)
    assert set(BY_ERROR.values()) <= set(OUTCOMES)


def test_an_unknown_error_is_a_failure():
    """It may be permanent; other tasks do not wait for it."""
    found = classify(trouble(kinds.OTHER), WELL, None)
    assert found[:2] == ("stream_error", Action.RETRY)
    assert cooldown_error(found, None, "why") is None


def test_which_ends_make_an_account_rest():
    for kind in (kinds.QUOTA, *kinds.OUTAGES):
        state = trouble(kind)
        assert cooldown_error(classify(state, BADLY, None), state.error, "why") == state.error
    told = classify(StreamState(ended=True), Ended(173, None, 0, 0), None, codes={173: kinds.QUOTA})
    assert cooldown_error(told, None, "why") == StreamError(kinds.QUOTA, "why")
    for kind in (kinds.AUTH, kinds.BILLING, kinds.RESUME, kinds.REQUEST):
        assert cooldown_error(classify(trouble(kind), BADLY, None), None, "why") is None


LIES = [
    # 'Never trust the exit code alone'
    ("all tools denied, exit 0", CLOSED._replace(denied=("Bash", "Edit")), WELL, "tools_denied"),
    (
        "… and it says that all is done",
        CLOSED._replace(denied=("Bash",), message="COMPLETED"),
        WELL,
        "tools_denied",
    ),
    (
        "… even in its structured result",
        CLOSED._replace(denied=("Bash",), result={"status": "completed"}),
        WELL,
        "tools_denied",
    ),
    (
        "some tools denied, work done",
        CLOSED._replace(denied=("Bash",), tools=1, message="COMPLETED"),
        WELL,
        "completed",
    ),
    (
        "an error inside the stream, then success",
        StreamState(ended=True, ok=True, message="I begin", error=StreamError(kinds.STREAM, "cut")),
        WELL,
        "stream_error",
    ),
    (
        "the same with a last line before the error",
        StreamState(
            ended=True, ok=True, message="COMPLETED", error=StreamError(kinds.STREAM, "cut")
        ),
        WELL,
        "stream_error",
    ),
    ("exit 0 without a report", CLOSED, WELL, "nothing_done"),
    (
        "exit 0 after SIGTERM: no closing word",
        StreamState(tools=1, message="I begin"),
        WELL,
        "crashed",
    ),
    ("429 in an exit 0", trouble(kinds.QUOTA), WELL, "quota"),
    ("a bad exit code after good work", said("COMPLETED: fine"), BADLY, "completed"),
    ("killed, but the report had come", said("COMPLETED: fine"), KILLED, "completed"),
    ("trouble of an unknown kind, exit 0", trouble(kinds.OTHER), WELL, "stream_error"),
    ("trouble of an unknown kind, exit 1", trouble(kinds.OTHER), BADLY, "crashed"),
    ("queue empty, though a task was given", said("QUEUE EMPTY"), WELL, "nothing_done"),
    (
        "plain text has no closing word",
        StreamState(closes=False, message="done!"),
        WELL,
        "nothing_done",
    ),
]


@pytest.mark.parametrize("case, state, ended, name", LIES, ids=[each[0] for each in LIES])
def test_the_exit_code_is_not_trusted(case, state, ended, name):
    assert classify(state, ended, None).name == name


@pytest.mark.parametrize("state, ended, ledger, name, action", EVERY, ids=[e[3] for e in EVERY])
def test_the_ledger_has_the_first_word(state, ended, ledger, name, action):
    assert classify(state, ended, "done").name == "settled"
    assert classify(state, ended, "blocked").name == "settled"
    assert classify(state, ended, "failed", hung=True).action == Action.NOTHING


def test_a_structured_result_comes_before_trouble_a_last_line_after_it():
    late = StreamError(kinds.NETWORK, "gone")
    structured = CLOSED._replace(result={"status": "completed", "summary": "s"}, error=late)
    assert classify(structured, BADLY, None).name == "completed"
    assert classify(said("COMPLETED")._replace(error=late), BADLY, None).name == "network"


def test_what_a_blocked_task_tells():
    state = CLOSED._replace(
        tools=1,
        result={
            "status": "blocked",
            "reason": "no license",
            "evidence": "LICENSE is missing",
            "next_step": "add one",
        },
    )
    outcome = classify(state, WELL, None)
    assert outcome[:5] == ("blocked", Action.BLOCK, "no license", "LICENSE is missing", "add one")
    line = classify(said("BLOCKED: no key / 401 from the API / set API_KEY"), WELL, None)
    assert line[2:5] == ("no key", "401 from the API", "set API_KEY")
    summed_up = CLOSED._replace(tools=1, result={"status": "failed", "summary": "no disk"})
    assert classify(summed_up, WELL, None).reason == "no disk"
    assert classify(said("BLOCKED"), WELL, None).reason == "it reported blocked without a reason"


def test_what_comes_with_a_completed_one():
    report = {"status": "completed", "summary": "s", "receipts": ["r1"], "category": "c", "data": 1}
    outcome = classify(CLOSED._replace(result=report, tools=1), WELL, None)
    assert outcome.result == {"summary": "s", "receipts": ["r1"], "category": "c", "data": 1}


def test_denied_tools_are_named_and_how_to_allow_them():
    outcome = classify(
        CLOSED._replace(denied=("Bash", "Bash", "Edit"), message="I may not"), WELL, None
    )
    assert outcome.reason == "every tool it asked for was refused: Bash, Edit"
    assert outcome.evidence == "I may not"
    assert "--allow" in outcome.next_step
    told = CLOSED._replace(denied=("Bash",), result={"status": "blocked", "reason": "no shell"})
    assert classify(told, WELL, None).evidence == "no shell"


def test_what_is_reported_about_trouble():
    troubled = trouble(kinds.SERVER, status=500)
    assert classify(troubled, BADLY, None).evidence == "the words of the provider"
    assert classify(troubled, BADLY, None).reason.endswith(" (HTTP 500)")
    wordless = CLOSED._replace(
        message="I begin", denied=("Bash",), error=StreamError(kinds.NETWORK, "")
    )
    assert classify(wordless, BADLY, None).evidence == "I begin (refused: Bash)"
    assert "HTTP" not in classify(wordless, BADLY, None).reason


def test_what_is_reported_about_a_crash():
    state = StreamState(tools=1, message="I\nbegin")
    assert classify(state, KILLED, None)[2:4] == (
        "the agent failed: killed by SIGTERM",
        "I begin",
    )


def test_exit_codes_of_the_profile_tell_when_nothing_else_does():
    codes = {53: kinds.TURNS, 42: kinds.RESUME}
    assert classify(StreamState(), Ended(53, None, 0, 0), None, codes=codes).name == "max_turns"
    assert classify(StreamState(), Ended(42, None, 0, 0), None, codes=codes).name == "lost_session"
    assert classify(StreamState(), Ended(53, None, 0, 0), None).name == "crashed"
    hung = classify(CLOSED, Ended(53, None, 0, 0), None, hung=True, codes=codes)
    assert hung.name == "hung", "we ended it ourselves: the code is about that"
    done = said("COMPLETED")
    assert classify(done, Ended(53, None, 0, 0), None, codes=codes).name == "completed"


def test_a_run_that_claims_by_itself_needs_no_report():
    empty = classify(said("QUEUE EMPTY: 3 done"), WELL, None, wants_report=False)
    assert (empty.name, empty.result) == ("completed", {"summary": "3 done"})
    assert classify(CLOSED, WELL, None, wants_report=False).name == "completed"
    assert classify(StreamState(), WELL, None, wants_report=False).name == "crashed"
    assert classify(trouble(kinds.QUOTA), BADLY, None, wants_report=False).name == "quota"
    failed = CLOSED._replace(ok=False)
    assert classify(failed, WELL, None, wants_report=False).name == "nothing_done"


def test_a_stop_because_of_a_limit_is_about_the_limit():
    seen = StreamState(tools=1, error=StreamError(kinds.QUOTA, "429", 429, retrying=True))
    assert classify(seen, KILLED, None).name == "quota"


def test_long_words_are_cut():
    state = CLOSED._replace(ok=False, error=StreamError(kinds.SERVER, "x" * 100_000))
    assert len(classify(state, BADLY, None).evidence) == 2000


def test_every_outcome_has_an_action_and_a_meaning():
    assert tuple(OUTCOMES) == get_args(OutcomeName)


def test_a_claim_that_was_taken_away_is_lost():
    """The gateway has refused its call before the worker noticed."""
    gone = Refusal("claim", "this attempt has ended (released)")
    assert classify(CLOSED, KILLED, "released", refusal=gone).name == "lost_claim"
    assert classify(CLOSED, KILLED, "released").name == "settled"
