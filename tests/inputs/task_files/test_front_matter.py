"""Front matter as people write it: read as they mean it, changed without touching the rest."""

from __future__ import annotations

from datetime import date

from hypervisor.inputs.task_files.edit import edit_fields
from hypervisor.inputs.task_files.front_matter import FrontMatter

TYPICAL = """id: t-1
# when we have time
title: Fix the pump (again), ask http://x.y/z
status: todo\r
tags: [a, b-c, 'd e', 3]
due: 2026-01-05
points: 8

quoted: "a: #b"
assignee:
"""


def test_fields_are_read_as_people_mean_them():
    assert FrontMatter(TYPICAL).fields() == {
        "id": "t-1",
        "title": "Fix the pump (again), ask http://x.y/z",
        "status": "todo",
        "tags": ["a", "b-c", "d e", 3],
        "due": "2026-01-05",
        "points": 8,
        "quoted": "a: #b",
        "assignee": None,
    }


def test_only_the_changed_values_are_touched():
    changes = {"status": "done", "assignee": "ann", "points": None, "x": "yes"}
    assert edit_fields(TYPICAL, changes, "\n") == (
        TYPICAL.replace("todo", "done")
        .replace("points: 8\n", "")
        .replace("assignee:", "assignee: ann")
        + "x: 'yes'\n"
    )


def test_a_name_that_yaml_takes_for_a_value_is_quoted():
    assert edit_fields("a: 1\n", {"on": date(2026, 1, 2)}, "\n") == "a: 1\n'on': 2026-01-02\n"
