"""Following a run: who sees nothing looks at little, the end is seen at once, nobody is left."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from hypervisor.cli.output import print_json_object
from hypervisor.cli.views import Lines
from hypervisor.runs import monitor, status
from hypervisor.runs import run as running
from hypervisor.runs.monitor import Monitor, Target
from tests.cli.conftest import until
from tests.cli.running import held, run
from tests.runs import test_run as made_up

context = made_up.hv


@pytest.fixture
def hv(project):
    return project


def submitted(context) -> str:
    """A batch of two, one of which runs."""
    batch = running.run(context, made_up.SPEC, made_up.items("a", "b"), "b").batch.id
    made_up.at_work(context, batch)
    return str(batch)


def following(context, batch, on_failure=None) -> Monitor:
    return Monitor(context, Target((batch,), 0), on_failure)


def test_where_nothing_is_shown_nobody_asks_what_runs(context, monkeypatch):
    batch = submitted(context)
    made_up.claim(context, now=None)
    shown = following(context, batch, Lines().failed).look()
    assert [each.title for each in shown.status.attempts] == ["a"]

    monkeypatch.setattr(status, "attempts", None)
    monkeypatch.setattr(monitor, "ended_since", None)
    silent = following(context, batch).look()
    assert silent.status._replace(attempts=()) == shown.status._replace(attempts=())
    assert silent.status.attempts == () and silent.open == 2


def test_the_end_is_seen_before_the_next_look_is_due(context):
    batch = submitted(context)
    first, second = made_up.claim(context, limit=2, now=None)
    silent = following(context, batch)
    assert silent.look().open == 2 and not silent.is_due()
    made_up.settle(context, first, "complete", None)
    silent.rest()
    assert not silent.is_due()  # the other one runs: there is nothing to see
    made_up.settle(context, second, "complete", None)
    silent.rest()
    assert silent.is_due() and silent.look().open == 0


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
    assert list(found)[-3:] == ["estimated", "left_out", "unwritten"]


def test_what_is_submitted_behind_a_supervisor_that_drains_is_run(hv):
    held(hv, "b", ["x"])
    first = hv.json("status")["supervisor"]
    os.kill(first, signal.SIGTERM)
    until(lambda: (hv.json("status")["host"] or {}).get("asked") == "drain", "it drains")
    said = hv.ok("status")
    assert "nothing new is started: the supervisor was asked to drain" in said

    told = run(hv, "--detach", "--name", "c", "--", "true", items=["y"])
    assert "the next one begins when what it runs has ended" in told
    assert hv.json("status", "c")["stats"]["states"]["active"] == 1
    (hv.folder / "open").touch()
    until(lambda: hv.json("status", "c")["stats"]["states"]["done"] == 1, "the next one runs it")
    assert hv.json("status")["supervisor"] != first
