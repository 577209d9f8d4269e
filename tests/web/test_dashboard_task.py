"""The page of a task: the tasks around it, what it found, what an agent did and was told."""

from __future__ import annotations

import json
import re

import pytest

import hypervisor
from hypervisor import NewTask
from hypervisor.agents import stream_events as ev
from hypervisor.agents.transcript import TranscriptRenderer
from hypervisor.agents.transcript_details import (
    MAX_DIFF_LINES,
    detailed_transcript,
    diff_of,
)
from hypervisor.queue.dependencies import LEVELS, MAX_IN_LEVEL, neighborhood
from hypervisor.runs.spec import spec_data
from hypervisor.web.dashboard.diffs import short_diff_lines
from hypervisor.web.dashboard.graphs import drawing
from tests.web.dashboards import Browser

HOSTILE = "<img src=x onerror=alert(1)>\u202e"


@pytest.fixture
def hv(tmp_path):
    with hypervisor.open(tmp_path / "x.db", relaxed=True) as opened:
        yield opened


def chain(hv, *titles):
    """Each waits for the one before."""
    ids: list[str] = []
    for title in titles:
        ids += hv.add([NewTask(title, after=tuple(ids[-1:]))]).ids
    return ids


def test_the_tasks_around_one_are_two_steps_far(hv):
    ids = chain(hv, *"abcdefg")
    found = neighborhood(hv, ids[3])
    assert found is not None
    assert [(task.title, task.level) for task in found.tasks] == [
        ("b", -2), ("c", -1), ("d", 0), ("e", 1), ("f", 2),
    ]  # fmt: skip
    assert set(found.edges) == {(ids[n], ids[n + 1]) for n in range(1, 5)}
    assert neighborhood(hv, hv.add([NewTask("alone")]).ids[0]) is None


def test_a_crowd_is_counted_and_a_circle_of_ways_is_drawn_once(hv):
    (first,) = hv.add([NewTask("first")]).ids
    many = hv.add([NewTask(str(n), after=(first,)) for n in range(30)]).ids
    hv.add([NewTask("last", after=many)])
    found = neighborhood(hv, first)
    assert found is not None
    assert found.left_out == {1: 30 - MAX_IN_LEVEL}
    assert len([task for task in found.tasks if task.level == 1]) == MAX_IN_LEVEL
    assert [task.title for task in found.tasks if task.level == LEVELS] == ["last"]
    drawn = drawing(found)
    assert len(drawn.boxes) == len({(box.x, box.y) for box in drawn.boxes}) == MAX_IN_LEVEL + 2
    assert len(drawn.lines) == 2 * MAX_IN_LEVEL and drawn.more[0].tasks == 30 - MAX_IN_LEVEL
    assert all(0 <= box.y < drawn.height and 0 <= box.x < drawn.width for box in drawn.boxes)


def test_dependencies_are_drawn_with_links_and_states(hv):
    ids = chain(hv, "first", HOSTILE, "last")
    part = Browser(hv).part(f"/tasks/{ids[1]}", "dependencies").text
    assert re.findall('<a href="/tasks/(.*?)"', part) == ids
    assert part.count("<path") == 2 and "<img" not in part and "\u202e" not in part
    assert 'aria-current="page"' in part and 'class="active"' in part
    lone = hv.add([NewTask("lone")]).ids[0]
    assert Browser(hv).part(f"/tasks/{lone}", "dependencies").text.strip() == ""


def test_findings_of_the_task_and_of_its_branch_are_shown(hv):
    (task,) = hv.add([NewTask("a", branch="billing")]).ids
    (claim,) = hv.claim("w")
    hv.remember(f"own {HOSTILE}", claim=claim.token)
    hv.remember("of others", branch="billing")
    part = Browser(hv).part(f"/tasks/{task}", "findings").text
    own, others = part.split("On its branch")
    assert "own &lt;img" in own and "of others" not in own
    assert "of others" in others and "own" not in others.partition("</ul>")[0]
    (plain,) = hv.add([NewTask("b", branch="nowhere")]).ids
    assert Browser(hv).part(f"/tasks/{plain}", "findings").text.strip() == ""


EDITS: list[tuple[object, list[str]]] = [
    ({"file_path": "a.py", "old_string": "x = 1\n", "new_string": "x = 2\n"}, ["-x = 1", "+x = 2"]),
    ({"filePath": "a", "oldString": "a", "newString": ""}, ["-a"]),
    ({"path": "a", "edits": [{"old_text": "a", "new_text": "b"}, 7]}, ["-a", "+b"]),
    ({"file_path": "a", "content": "one\ntwo"}, ["+one", "+two"]),
    ({"patch": "@@ -1 +1 @@\n-a\n+b"}, ["-a", "+b"]),
    ({"command": "ls"}, []),
    ({"old_string": 1, "new_string": ["x"]}, []),
    ("text", []),
    (None, []),
]


@pytest.mark.parametrize(("given", "changed"), EDITS)
def test_the_change_of_a_tool_is_a_diff(given, changed):
    lines = short_diff_lines(diff_of(ev.ToolCall("Edit", given)))
    assert [line.text for line in lines if line.kind in ("added", "removed")] == changed


def test_a_long_change_is_cut():
    text = diff_of(ev.ToolCall("Write", {"content": "line\n" * 1_000}))
    assert len(text.splitlines()) == MAX_DIFF_LINES + 1 and "more lines" in text
    assert diff_of(ev.ToolCall("Write", {"content": "x" * 10_000_000})) == ""


def test_details_are_left_out_unless_asked_for():
    def line(content):
        message = {"role": "user", "content": [{"type": "tool_result", "content": content}]}
        return json.dumps({"type": "user", "message": message})

    answer = line("one\ntwo\nthree")
    (plain,) = TranscriptRenderer("claude").feed(answer)
    assert plain.text == "one (and 2 more lines)"
    (detailed,) = detailed_transcript("claude", [answer, "", "{"])[:1]
    assert (detailed.line.text, detailed.rest) == ("one", "two\nthree")


def test_the_prompt_of_an_agent_is_shown(hv, monkeypatch):
    agent = hypervisor.AgentSpec("claude", prompt="Look at {} closely")
    spec = spec_data(hypervisor.RunSpec(".", agent, workspace="project"))
    (task,) = hv.add([NewTask("area.py", data={"item": "area.py"})], batch="b").ids
    browser = Browser(hv)
    assert "Prompt" not in browser.part(f"/tasks/{task}", "summary").text
    from hypervisor.web.dashboard.pages import task as pages

    shown = hv.show(task)
    batch = shown.batch._replace(spec=spec)
    monkeypatch.setattr(pages, "show", lambda *_: shown._replace(batch=batch))
    part = browser.part(f"/tasks/{task}", "summary").text
    assert "Prompt" in part and "Look at" in part and "closely" in part
