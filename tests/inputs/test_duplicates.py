"""Repeated items are found without storing all of them; similar tasks get the same checks."""

from __future__ import annotations

import tracemalloc
from collections import Counter, deque
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypervisor.cli.commands import run as command
from hypervisor.cli.commands_table import COMMANDS
from hypervisor.cli.main import make_parser
from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput
from hypervisor.inputs import duplicates
from hypervisor.inputs.duplicates import DuplicateFinder
from hypervisor.inputs.items import item_hash, occurrences, task_for
from hypervisor.inputs.template import Item
from hypervisor.queue.add import SimilarTaskChecker, check_task
from hypervisor.queue.task import NewTask

SMALL = st.integers(-3, 12)
ITEM = st.builds(
    Item,
    st.sampled_from(["a", "b", "a #2", "-"]),
    st.just(1),
    st.none() | st.fixed_dictionaries({"x": st.integers(0, 1)}),
    other=st.just(()),
)


@pytest.mark.parametrize(("block", "piece"), [(1, 1), (3, 2), (4, 4), (1_000, 10)])
@given(numbers=st.lists(SMALL, max_size=40))
def test_all_that_come_twice_are_found(block, piece, numbers):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duplicates, "BLOCK", block)
        patch.setattr(duplicates, "PIECE", piece)
        finder = DuplicateFinder()
        for number in numbers:
            finder.add(number)
        assert finder.duplicates() == {one for one, times in Counter(numbers).items() if times > 1}


@given(st.lists(ITEM, max_size=12))
def test_who_only_looks_at_those_counts_the_same(items):
    finder = DuplicateFinder()
    for item in items:
        finder.add(item_hash(item))
    assert list(occurrences(items, finder.duplicates())) == list(occurrences(items))


def test_an_item_that_only_shares_a_likeness_comes_once():
    items = [Item("a"), Item("b"), Item("a")]
    assert [times for _, times in occurrences(items, {item_hash(each) for each in items})] == [
        1,
        1,
        2,
    ]


def peak_of(tmp_path, count: int) -> int:
    """The peak memory of reading this many items and making tasks from them."""
    path = tmp_path / f"{count}"
    path.write_text("".join(f"item {number} of them\n" for number in range(count)))
    parser, _ = make_parser(COMMANDS["run"])
    args = parser.parse_args(["--items", str(path), "--branch", "b", "--", "true"])
    args.words, args.command, args.look = ["--", "true"], ["true"], lambda: None
    tracemalloc.start()
    command.prepare(args)
    hv: Any = SimpleNamespace(now=lambda: 0)  # it is not asked for the branch
    deque(args.prepared.items.tasks(hv, "b", ()), maxlen=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    args.prepared.items.close()
    return peak


def test_no_items_are_held(tmp_path):
    peak_of(tmp_path, 100)  # and all that is made once
    few, many = peak_of(tmp_path, 1_000), peak_of(tmp_path, 80_000)
    assert many - few < 2_500_000  # their texts alone would be twice as much


TASK = st.builds(
    NewTask,
    title=st.sampled_from(["a", "b", ""]),
    type=st.sampled_from(["run", "a b"]),
    priority=st.sampled_from(["high", "medium", "soon"]),
    key=st.sampled_from([None, "k", "", "x" * 9_000]),
    requires=st.sampled_from([(), ("b", "a"), ["a"], ("a b",)]),
    exclusive=st.sampled_from([(), ("k",)]),
    retries=st.sampled_from([0, 1, True, -1]),
    data=st.sampled_from([None, {"item": "a"}, {"item": float("nan")}, object()]),
    inbox=st.sampled_from([False, True, 1]),
    chunk=st.integers(0, 2),
)


def outcome(check, task):
    try:
        return check(task)
    except InvalidInput as error:
        return str(error)


@given(st.lists(TASK, max_size=6))
def test_what_is_not_looked_at_again_was_checked_before(tasks):
    alike = SimilarTaskChecker()
    for task in tasks:
        found = outcome(alike.check, task)
        wanted = outcome(check_task, task)
        if found != wanted:  # equal to a good one, so that is what is kept: 1 for True
            assert isinstance(found, NewTask) and check_task(found) == found
            assert found._replace(requires=tuple(task.requires)) == task._replace(
                requires=tuple(task.requires)
            )


@pytest.mark.parametrize(
    "other",
    [
        {"body": "b"},
        {"type": "t"},
        {"priority": "low"},
        {"key": "k"},
        {"branch": "b"},
        {"assignee": "a"},
        {"requires": ("r",)},
        {"exclusive": ("e",)},
        {"after": ("a",)},
        {"start_at": 5},
        {"retries": 3},
        {"data": {"d": 1}},
        {"inbox": True},
        {"chunk": 2},
    ],
    ids=str,
)
def test_nothing_is_taken_from_the_one_before(other):
    alike = SimilarTaskChecker()
    alike.check(NewTask("a"))
    task = NewTask("a")._replace(**other)
    assert alike.check(task) == check_task(task) == task


def test_tasks_that_are_alike_are_not_taken_for_each_other():
    base, alike = NewTask("", type="run"), SimilarTaskChecker()
    made = [alike.check(task_for(Item(text, 1), base)) for text in ("a", "b")]
    made.append(alike.check(task_for(Item("c", 1), base)._replace(priority="low", chunk=3)))
    made.append(alike.check(task_for(Item("d", 1), base)))
    assert [(each.title, each.key, each.data["item"]) for each in made] == [
        (text, text, text) for text in "abcd"
    ]
    assert [(each.priority, each.chunk) for each in made] == [
        ("medium", 0),
        ("medium", 0),
        ("low", 3),
        ("medium", 0),
    ]


@pytest.mark.parametrize(
    "value",
    [
        {"a": 10**5000},
        {"a": float("nan")},
        {"a": {1, 2}},
        {(1, 2): "a"},
        {"a": b"x"},
        {"a": "x" * 4_000_001},
        {"x" * 4_000_001: 1},
        {f"{number}": "x" * 1_000_000 for number in range(5)},
    ],
    ids=["huge", "nan", "set", "tuple", "bytes", "text", "name", "together"],
)
def test_what_cannot_be_kept_is_refused_however_little_it_is(value):
    with pytest.raises(InvalidInput):
        validate.json_value("it", value)
