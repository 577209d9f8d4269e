"""Following a run: its JSON, and runs submitted while a supervisor drains."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from hypervisor.cli.output import print_json_object
from tests.cli.conftest import until
from tests.cli.running import held, run


@pytest.fixture
def hv(project):
    return project


@pytest.mark.parametrize(
    "value", [{}, {"a": 1}, {"tasks": [], "x": None}, {"tasks": [1, {"é": "\ud800"}]}]
)
def test_json_that_is_not_held_reads_like_json_that_is(capsys, value):
    streamed: dict[str, Any] = {
        name: iter(each) if isinstance(each, list) else each for name, each in value.items()
    }
    assert all(isinstance(each, Iterator) for name, each in streamed.items() if name == "tasks")
    print_json_object(streamed)
    printed = capsys.readouterr().out
    assert json.loads(printed) == value and printed.endswith("}\n") and printed.count("\n") == 1


def test_a_run_told_as_json_has_its_tasks(hv):
    out = run(hv, "--json", "--name", "b", "--", "true", items=["x", "y"])
    found = json.loads(out)
    assert [task["title"] for task in found["tasks"]] == ["x", "y"]
    assert (found["total"], found["succeeded"], found["skipped"]) == (2, True, 0)
    assert list(found)[-2:] == ["left_out", "unwritten"]


def test_what_is_submitted_behind_a_supervisor_that_drains_is_run(hv):
    held(hv, "b", ["x"])
    first = hv.json("status")["supervisor"]
    os.kill(first, signal.SIGTERM)
    until(lambda: (hv.json("status")["host"] or {}).get("asked") == "drain", "it drains")
    said = hv.ok("status")
    assert "starting nothing new: the supervisor was asked to drain" in said

    told = run(hv, "--detach", "--name", "c", "--", "true", items=["y"])
    assert "the next one starts when its tasks have finished" in told
    assert hv.json("status", "c")["stats"]["states"]["active"] == 1
    (hv.folder / "open").touch()
    until(lambda: hv.json("status", "c")["stats"]["states"]["done"] == 1, "the next one runs it")
    assert hv.json("status")["supervisor"] != first
