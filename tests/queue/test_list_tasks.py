"""Tasks are found by their text, a part of their id and their lane, a page at a time."""

from __future__ import annotations

import pytest

from hypervisor.queue.context import Context
from hypervisor.queue.queries import list_tasks
from hypervisor.queue.sql import archive, queries
from hypervisor.queue.task import NewTask
from hypervisor.resources.host import LocalHost
from tests.support.given import NOW


@pytest.fixture
def hv(ledger):
    return Context(ledger, LocalHost(), "me")


def titles(hv, *given, **wanted):
    return [task.title for task in list_tasks(hv, *given, **wanted)]


def test_tasks_are_found_by_title_and_key_with_other_filters(hv, ledger):
    tasks = [NewTask("Read 50%", type="read"), NewTask("read 500", key="docs/A_1", branch="main")]
    ledger.add(tasks, "one", "me", NOW)
    ledger.add([NewTask("read")], "old", "me", NOW + 1)
    ledger.write(archive.archive, ledger.read(queries.batch, "old").id, "me", NOW + 2)
    assert titles(hv, text="READ") == ["read 500", "Read 50%"], "newest first, without archived"
    assert titles(hv, text="read", archived=True) == ["read", "read 500", "Read 50%"]
    assert titles(hv, text="50%") == ["Read 50%"] and titles(hv, text="a_1") == ["read 500"]
    assert titles(hv, text="a%1") == []
    assert titles(hv, text="read", type="read") == ["Read 50%"]
    assert titles(hv, ("active",), text="read", branch="main") == ["read 500"]
    assert titles(hv, (), "one", text="500") == ["read 500"]
    assert titles(hv, type="read", branch="main") == []


def test_tasks_are_found_by_a_part_of_their_id(hv, ledger):
    first, second = ledger.add([NewTask("a"), NewTask("b")], None, "me", NOW).ids
    assert titles(hv, text=first) == ["a"] == titles(hv, text=f" {first.upper()} ")
    assert titles(hv, text=second[-5:]) == ["b"] == titles(hv, ("active",), text=second[-5:])
    assert titles(hv, text=first[:4]) == ["b", "a"], "the same beginning"
    assert titles(hv, text=first[4:8]) == [], "too short for the middle of an id"


def test_pages_of_a_search_follow_each_other(hv, ledger):
    ledger.add([NewTask(f"item {n}") for n in range(1_200)], None, "me", NOW)
    found, before = [], None
    while page := list_tasks(hv, text="ITEM", limit=700, before=before):
        found += [task.title for task in page]
        before = page[-1].id
    assert found == [f"item {n}" for n in reversed(range(1_200))]
