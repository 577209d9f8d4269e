"""The verdict on a run: from evidence, the surest first."""

import pytest

from hypervisor.domain.agents import heard as kinds
from hypervisor.domain.agents.heard import Heard, Trouble
from hypervisor.domain.agents.judging import BY_TROUBLE, judge
from hypervisor.domain.agents.outcome import (
    BLOCK,
    COMPLETE,
    FAIL,
    GIVE_UP,
    NOTHING,
    OUTCOMES,
    RELEASE,
    RETRY,
)
from hypervisor.domain.attempt import Ended

WELL, BADLY, KILLED = Ended(0, None, 0, 0), Ended(1, None, 0, 0), Ended(None, 15, 0, 0)
CLOSED = Heard(ended=True, ok=True)  # its closing word said that all is well


def trouble(kind, **more):
    return CLOSED._replace(ok=False, trouble=Trouble(kind, "the words of the provider", **more))


def said(text):
    return CLOSED._replace(said=text, tools=1)


EVERY = [
    # what was heard, how the program ended, the ledger → outcome, what follows
    (said("COMPLETED: fine"), WELL, "done", "settled", NOTHING),
    (said("COMPLETED: fine"), WELL, None, "completed", COMPLETE),
    (said("BLOCKED: no key"), WELL, None, "blocked", BLOCK),
    (said("FAILED: no way"), WELL, None, "refused", FAIL),
    (said("I could do that, if you like."), WELL, None, "nothing_done", RETRY),
    (CLOSED._replace(denied=("Bash",)), WELL, None, "tools_denied", BLOCK),
    (CLOSED._replace(mcp="dead", tools=1), WELL, None, "mcp_dead", RETRY),
    (trouble(kinds.STREAM), WELL, None, "stream_error", RETRY),
    (trouble(kinds.QUOTA, status=429), BADLY, None, "quota", RELEASE),
    (trouble(kinds.OVERLOAD, status=529), BADLY, None, "overload", RELEASE),
    (trouble(kinds.AUTH, status=401), BADLY, None, "auth", GIVE_UP),
    (trouble(kinds.REQUEST, status=400), BADLY, None, "bad_request", FAIL),
    (trouble(kinds.SERVER, status=500), BADLY, None, "server_error", RETRY),
    (trouble(kinds.NETWORK), BADLY, None, "network", RETRY),
    (trouble(kinds.TURNS), BADLY, None, "max_turns", FAIL),
    (trouble(kinds.BUDGET), BADLY, None, "over_budget", FAIL),
    (trouble(kinds.RESUME), BADLY, None, "lost_session", RELEASE),
    (Heard(tools=2), KILLED, None, "crashed", RETRY),
]


@pytest.mark.parametrize("heard, ended, ledger, name, follows", EVERY, ids=[e[3] for e in EVERY])
def test_every_outcome(heard, ended, ledger, name, follows):
    outcome = judge(heard, ended, ledger)
    assert (outcome.name, outcome.follows) == (name, follows)
    assert outcome.follows == OUTCOMES[name][0]
    assert outcome.reason


def test_stopped_and_hung():
    assert judge(Heard(tools=1), KILLED, None, stopped=True)[:2] == ("stopped", NOTHING)
    assert judge(CLOSED, KILLED, None, hung=True)[:2] == ("hung", RETRY)
    assert judge(said("COMPLETED"), KILLED, None, hung=True).name == "completed"
    named = {each[3] for each in EVERY} | {"stopped", "hung", "lost_claim"}  # the worker names it
    assert named == set(OUTCOMES)
    assert set(BY_TROUBLE.values()) <= set(OUTCOMES)


LIES = [
    # 'Never trust the exit code alone'
    ("all tools denied, exit 0", CLOSED._replace(denied=("Bash", "Edit")), WELL, "tools_denied"),
    ("… and it says that all is done",
     CLOSED._replace(denied=("Bash",), said="COMPLETED"), WELL, "tools_denied"),
    ("… even in its structured result",
     CLOSED._replace(denied=("Bash",), result={"status": "completed"}), WELL, "tools_denied"),
    ("some tools denied, work done",
     CLOSED._replace(denied=("Bash",), tools=1, said="COMPLETED"), WELL, "completed"),
    ("an error inside the stream, then success",
     Heard(ended=True, ok=True, said="I begin", trouble=Trouble(kinds.STREAM, "cut")), WELL,
     "stream_error"),
    ("the same with a last line before the error",
     Heard(ended=True, ok=True, said="COMPLETED", trouble=Trouble(kinds.STREAM, "cut")), WELL,
     "stream_error"),
    ("exit 0 without a report", CLOSED, WELL, "nothing_done"),
    ("exit 0 after SIGTERM: no closing word", Heard(tools=1, said="I begin"), WELL, "crashed"),
    ("429 in an exit 0", trouble(kinds.QUOTA), WELL, "quota"),
    ("a bad exit code after good work", said("COMPLETED: fine"), BADLY, "completed"),
    ("killed, but the report had come", said("COMPLETED: fine"), KILLED, "completed"),
    ("trouble of an unknown kind, exit 0", trouble(kinds.OTHER), WELL, "stream_error"),
    ("trouble of an unknown kind, exit 1", trouble(kinds.OTHER), BADLY, "crashed"),
    ("queue empty, though a task was given", said("QUEUE EMPTY"), WELL, "nothing_done"),
    ("plain text has no closing word", Heard(closes=False, said="done!"), WELL, "nothing_done"),
]  # fmt: skip


@pytest.mark.parametrize("case, heard, ended, name", LIES, ids=[each[0] for each in LIES])
def test_the_exit_code_is_not_trusted(case, heard, ended, name):
    assert judge(heard, ended, None).name == name


@pytest.mark.parametrize("heard, ended, ledger, name, follows", EVERY, ids=[e[3] for e in EVERY])
def test_the_ledger_has_the_first_word(heard, ended, ledger, name, follows):
    assert judge(heard, ended, "done").name == "settled"
    assert judge(heard, ended, "blocked", stopped=True).name == "settled"
    assert judge(heard, ended, "failed", hung=True).follows == NOTHING


def test_a_structured_result_comes_before_trouble_a_last_line_after_it():
    late = Trouble(kinds.NETWORK, "gone")
    structured = CLOSED._replace(result={"status": "completed", "summary": "s"}, trouble=late)
    assert judge(structured, BADLY, None).name == "completed"
    assert judge(said("COMPLETED")._replace(trouble=late), BADLY, None).name == "network"


def test_what_a_blocked_task_tells():
    heard = CLOSED._replace(
        tools=1,
        result={"status": "blocked", "reason": "no licence", "evidence": "LICENSE is missing",
                "next_step": "add one"},
    )  # fmt: skip
    outcome = judge(heard, WELL, None)
    assert outcome[:5] == ("blocked", BLOCK, "no licence", "LICENSE is missing", "add one")
    line = judge(said("BLOCKED: no key / 401 from the API / set API_KEY"), WELL, None)
    assert line[2:5] == ("no key", "401 from the API", "set API_KEY")
    summed_up = CLOSED._replace(tools=1, result={"status": "failed", "summary": "no disk"})
    assert judge(summed_up, WELL, None).reason == "no disk"
    assert judge(said("BLOCKED"), WELL, None).reason == "it reported blocked without a reason"


def test_what_comes_with_a_completed_one():
    report = {"status": "completed", "summary": "s", "receipts": ["r1"], "category": "c", "data": 1}
    outcome = judge(CLOSED._replace(result=report, tools=1), WELL, None)
    assert outcome.result == {"summary": "s", "receipts": ["r1"], "category": "c", "data": 1}


def test_denied_tools_are_named_and_how_to_allow_them():
    outcome = judge(CLOSED._replace(denied=("Bash", "Bash", "Edit"), said="I may not"), WELL, None)
    assert outcome.reason == "every tool it asked for was refused: Bash, Edit"
    assert outcome.evidence == "I may not"
    assert "--allow" in outcome.next_step
    told = CLOSED._replace(denied=("Bash",), result={"status": "blocked", "reason": "no shell"})
    assert judge(told, WELL, None).evidence == "no shell"


def test_what_is_told_of_trouble():
    troubled = trouble(kinds.SERVER, status=500)
    assert judge(troubled, BADLY, None).evidence == "the words of the provider"
    assert judge(troubled, BADLY, None).reason.endswith(" (HTTP 500)")
    wordless = CLOSED._replace(said="I begin", denied=("Bash",), trouble=Trouble(kinds.NETWORK, ""))
    assert judge(wordless, BADLY, None).evidence == "I begin (refused: Bash)"
    assert "HTTP" not in judge(wordless, BADLY, None).reason


def test_what_is_told_of_a_crash():
    heard = Heard(tools=1, said="I\nbegin")
    assert judge(heard, KILLED, None)[2:4] == (
        "the agent ended badly: killed by SIGTERM", "I begin",
    )  # fmt: skip


def test_exit_codes_of_the_profile_tell_when_nothing_else_does():
    codes = {53: kinds.TURNS, 42: kinds.RESUME}
    assert judge(Heard(), Ended(53, None, 0, 0), None, codes=codes).name == "max_turns"
    assert judge(Heard(), Ended(42, None, 0, 0), None, codes=codes).name == "lost_session"
    assert judge(Heard(), Ended(53, None, 0, 0), None).name == "crashed"
    hung = judge(CLOSED, Ended(53, None, 0, 0), None, hung=True, codes=codes)
    assert hung.name == "hung", "we ended it ourselves: the code is about that"
    done = said("COMPLETED")
    assert judge(done, Ended(53, None, 0, 0), None, codes=codes).name == "completed"


def test_a_run_that_claims_by_itself_needs_no_report():
    empty = judge(said("QUEUE EMPTY: 3 done"), WELL, None, wants_report=False)
    assert (empty.name, empty.result) == ("completed", {"summary": "3 done"})
    assert judge(CLOSED, WELL, None, wants_report=False).name == "completed"
    assert judge(Heard(), WELL, None, wants_report=False).name == "crashed"
    assert judge(trouble(kinds.QUOTA), BADLY, None, wants_report=False).name == "quota"
    failed = CLOSED._replace(ok=False)
    assert judge(failed, WELL, None, wants_report=False).name == "nothing_done"


def test_a_stop_because_of_a_limit_is_about_the_limit():
    seen = Heard(tools=1, trouble=Trouble(kinds.QUOTA, "429", 429, retrying=True))
    assert judge(seen, KILLED, None).name == "quota"
    assert judge(seen, KILLED, None, stopped=True).name == "stopped"


def test_long_words_are_cut():
    heard = CLOSED._replace(ok=False, trouble=Trouble(kinds.SERVER, "x" * 100_000))
    assert len(judge(heard, BADLY, None).evidence) == 2000
