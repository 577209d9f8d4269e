"""What counts as a report."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypervisor.agents.final_report import (
    REPORT_SCHEMA,
    STATUSES,
    report_in,
    schema_with,
    structured_in,
)
from hypervisor.agents.stream_state import StreamState


def report(said="", result=None):
    return report_in(StreamState(message=said, result=result))


LINES = [
    ("All is well.\nCOMPLETED", {"status": "completed", "summary": "All is well."}),
    ("COMPLETED: it works", {"status": "completed", "summary": "it works"}),
    ("x\n**COMPLETED**: it works\n\n", {"status": "completed", "summary": "it works"}),
    ("`COMPLETED`", {"status": "completed", "summary": ""}),
    ("```\nCOMPLETED: ok\n```", {"status": "completed", "summary": "ok"}),
    ("QUEUE EMPTY", {"status": "empty", "summary": ""}),
    ("QUEUE EMPTY: 3 done", {"status": "empty", "summary": "3 done"}),
]


@pytest.mark.parametrize("said, expected", LINES, ids=[each[0] for each in LINES])
def test_the_last_line(said, expected):
    assert report(said) == expected


@pytest.mark.parametrize(
    "said",
    [
        "",
        "COMPLETEDNESS",
        "It is COMPLETED",
        "I am not COMPLETED",
        "COMPLETED\nAnything else?",
        "completed",
        "done",
        "Will say COMPLETED: soon",
        "UNBLOCKED: yes",
    ],
)
def test_what_is_not_a_report(said):
    assert report(said) is None


def test_reason_evidence_and_next_step():
    blocked = report("BLOCKED: no key / GET /x gave 401 / set API_KEY")
    assert blocked == {
        "status": "blocked",
        "summary": "",
        "reason": "no key",
        "evidence": "GET /x gave 401",
        "next_step": "set API_KEY",
    }
    labelled = report("Reason: no key\n- **Evidence:** 401\n- Next step: set it\nBLOCKED")
    assert (labelled["reason"], labelled["evidence"], labelled["next_step"]) == (
        "no key",
        "401",
        "set it",
    )
    bold = report("Evidence: **401**\nBLOCKED: no key")
    assert (bold["reason"], bold["evidence"], bold["next_step"]) == ("no key", "401", "")
    two = report("BLOCKED: no key / 401")
    assert (two["reason"], two["evidence"]) == ("no key / 401", "401")
    path = report("FAILED: src/a/b.py does not parse")
    assert (path["reason"], path["status"]) == ("src/a/b.py does not parse", "failed")


def test_the_structured_result_comes_first():
    found = report("BLOCKED: no", {"status": "completed", "summary": "s"})
    assert found == {"status": "completed", "summary": "s"}


def test_the_last_json_object_of_the_last_message():
    said = (
        'First {"status": "failed"} then\n```json\n{"status": "Completed", "data": {"a": [1]}}\n```'
    )
    assert report(said) == {"status": "completed", "data": {"a": [1]}}
    assert report('{"status": "completed", "data": {"status": "x"}}')["data"] == {"status": "x"}
    assert report('{"status": "completed"} and {"summary": "more"}') == {"status": "completed"}
    assert report('{"x": broken {"status": "completed"}') == {"status": "completed"}
    assert report('{"status": "unheard of"}') is None
    assert report('{"summary": "no status"}') is None


def test_members_of_a_wrong_kind_do_no_harm():
    found = report(result={"status": "blocked", "reason": ["a", 1], "evidence": None, "x": 1})
    assert found == {"status": "blocked", "reason": '["a", 1]', "x": 1}
    assert report(result={"status": 5}) is None
    assert report(result=["status"]) is None
    assert len(report(result={"status": "failed", "reason": "y" * 9999})["reason"]) == 4000


def test_only_prose_is_not_structured():
    assert structured_in(StreamState(message="COMPLETED")) is None
    assert structured_in(StreamState(message='{"status":"completed","summary":""}')) is not None


def test_the_schema_names_what_is_read():
    assert REPORT_SCHEMA["properties"]["status"]["enum"] == list(STATUSES)
    mine = schema_with({"type": "integer"})
    assert mine["properties"]["data"] == {"type": "integer"}
    assert REPORT_SCHEMA["properties"]["data"] != {"type": "integer"}


@given(st.text() | st.text(alphabet='{}[]":,status completed\n'))
def test_any_message_can_be_looked_at(said):
    found = report(said)
    assert found is None or found["status"] in (*STATUSES, "empty")


def test_huge_and_deep_messages():
    assert report("{" * 200_000) is None
    assert report("[" * 200_000 + "COMPLETED") is None
    assert report('{"a":' * 50_000 + "\nCOMPLETED: ok")["summary"] == "ok"
    assert report("x" * 5_000_000 + "\nCOMPLETED: ok")["status"] == "completed"


def test_what_no_store_would_take_is_left_out():
    from hypervisor.core.validate import json_value

    deep: object = 1
    for _ in range(200):
        deep = [deep]
    given = {
        "status": "completed",
        "summary": "a\0b\ud800",
        "data": deep,
        "more": float("nan"),
        "big": "x" * 5_000_000,
        "some": [1, "\ud800"],
    }
    found = report(result=given)
    assert found == {"status": "completed", "summary": "ab?", "some": [1, "\ud800"]}
    json_value("it", found)
    many = {"status": "blocked", "reason": "r"} | {f"m{n}": "x" * 900_000 for n in range(9)}
    assert report(result=many) == {"status": "blocked", "reason": "r"}
    assert report('{"status": "completed", "data": NaN}') is None
