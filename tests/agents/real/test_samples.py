"""The recorded samples: complete, without paths of this machine, and parsed alike when a session is
resumed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hypervisor.agents.stream_state import RESUME, StreamState
from tests.agents.real import clis
from tests.agents.real.record import CASES, ONLY, STREAMS
from tests.agents.samples import state_after

SAMPLES = sorted(STREAMS.glob("*/*.jsonl"))


def test_every_case_was_recorded_of_every_program():
    expected = {
        f"{name}/{case}.jsonl"
        for case in CASES
        for name in clis.NAMES
        if name in ONLY.get(case, (name,))
    }
    assert {str(path.relative_to(STREAMS)) for path in SAMPLES} == expected


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_sample_says_how_it_was_made_and_nothing_of_where(path: Path):
    head, *lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert (head["cli"], head["case"]) == (path.parent.name, path.stem)
    assert all(set(line) == {"from", "line"} for line in lines)
    text = path.read_text().replace("/work/agent/", "")
    assert not [place for place in ("/root/", "/home/", "/tmp/") if place in text]


@pytest.mark.parametrize("name", clis.NAMES)
def test_a_session_that_is_gone_is_heard_by_one_that_resumes_it(name):
    """The state then begins with the session's name, as it was known."""
    lines = (STREAMS / name / "bad-resume.jsonl").read_text().splitlines()[1:]
    state = StreamState(session="00000000-0000-4000-8000-000000000000")
    for line in lines:
        state = state_after(name, state, json.loads(line)["line"])
    assert state.error is not None
    assert state.error.kind == RESUME
