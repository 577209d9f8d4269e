"""From an item to its task and back, and the key that tells items apart."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput
from hypervisor.inputs.items import item_of, occurrences, task_for
from hypervisor.inputs.template import Item, parse
from hypervisor.queue.add import check_task
from hypervisor.queue.task import NewTask, Task
from tests.inputs.some_items import BASE, ITEM, items


def as_task(new):
    """The task as a store gives it back: its data has been JSON in between."""
    data = json.loads(json.dumps(new.data))
    return Task(
        "t1",
        new.title,
        "active",
        new.type,
        new.priority,
        "",
        "",
        "",
        (),
        new.key,
        "",
        data,
        None,
        0,
        0,
        0,
        0,
        0,
        None,
        None,
        None,
        None,
        0,
        0,
    )


@given(ITEM, st.integers(1, 10**6))
def test_from_item_to_task_and_back(item, occurrence):
    new = task_for(item, BASE, occurrence)
    checked = check_task(new)
    assert item_of(as_task(checked)) == item
    assert new.type == "convert" and new.data["run"] == 1 and BASE.data == {"run": 1}
    assert new.title.strip() and len(new.title.splitlines()) == 1


def test_the_task_of_an_item():
    new = task_for(Item("a  b\nc", 3), BASE)
    assert (new.title, new.key) == ("a b c", "a  b\nc")
    assert new.data == {"run": 1, "item": "a  b\nc", "number": 3}
    new = task_for(Item("a", 3, {"size": "1"}), BASE)
    assert new.title == "a" and new.data["columns"] == {"size": "1"}
    blank = task_for(Item(" \n"), NewTask("x"))
    assert (blank.title, blank.key) == (r"' \n'", " \n #1") and check_task(blank)


@pytest.mark.parametrize("length", [1_999, 2_000, 2_001, 8_091, 8_192, 8_193, 600_000])
def test_long_items_have_short_titles_and_keys(length):
    text = "ä" * length
    new = check_task(task_for(Item(text), BASE, 10**9))
    assert len(new.title) == min(length, validate.MAX_TITLE_LENGTH)
    assert new.title.endswith("…") == (length > validate.MAX_TITLE_LENGTH)
    assert item_of(as_task(new)).text == text


def key(text, occurrence=1, columns=None, number=1):
    return task_for(Item(text, number, columns), BASE, occurrence).key


def test_the_same_item_has_the_same_key_wherever_it_stands():
    assert key("a", number=1) == key("a", number=2) == "a"
    assert key("a", 2, number=5) == key("a", 2) == "a #2"
    assert key("a", columns={"x": 1, "y": 2}) == key("a", columns={"y": 2, "x": 1}, number=9)
    assert key("x" * 9_000) == key("x" * 9_000, number=2)


def test_keys_that_could_be_mistaken():
    plain = ["a", "a #2", "a #1", "a #2 #1", " ", "  #1", "a #02", "a #٢", "x" * 9_000]
    plain += [key(text, 3) for text in plain] + [key(text, 1, {"x": 1}) for text in plain]
    found = [
        key(text, occurrence, columns)
        for text in plain
        for occurrence in (1, 2, 3, 12)
        for columns in (None, {}, {"x": 1}, {"x": "1"})
    ]
    assert len(set(found)) == len(found) == len(plain) * 16


PAIR = st.tuples(
    st.lists(st.sampled_from(["a", " ", "#", " #", "1", "2", "-", "0" * 32, "{}"]), min_size=1).map(
        "".join
    ),
    st.integers(1, 12),
    st.none() | st.dictionaries(st.sampled_from("ab"), st.sampled_from([1, "1", None])),
)


@given(st.lists(PAIR, max_size=10))
def test_different_items_and_occurrences_never_share_a_key(pairs):
    distinct = {json.dumps(pair, sort_keys=True): pair for pair in pairs}
    assert len({key(*pair) for pair in distinct.values()}) == len(distinct)


def test_occurrences_are_counted_from_one():
    row = {"x": 1}
    given = [Item("a"), Item("b"), Item("a", 3), Item("a", 4, row), Item("a", 5, row), Item("a", 6)]
    assert list(occurrences(given)) == list(zip(given, [1, 1, 2, 1, 2, 3], strict=True))
    assert list(occurrences([])) == []


@given(st.lists(ITEM, max_size=20))
def test_the_same_input_gives_the_same_keys_and_none_twice(given):
    keys = [task_for(item, BASE, n).key for item, n in occurrences(given)]
    assert len(set(keys)) == len(keys)
    assert keys == [task_for(item, BASE, n).key for item, n in occurrences(iter(given))]


@pytest.mark.parametrize("data", [None, 5, [], {}, {"item": 5}, {"item": None}])
def test_a_task_without_an_item(data):
    task = as_task(NewTask("x", key="x", data=data))
    with pytest.raises(InvalidInput, match="the task t1 has no item"):
        item_of(task)


def test_a_task_that_was_added_by_hand_needs_only_an_item():
    assert item_of(as_task(NewTask("x", data={"item": "a"}))) == Item("a", 1, None)


def test_from_a_table_to_commands():
    rows = items("file,size\na b.txt,10\n-c,20\n", "csv")
    template = parse(["resize", "{file}", "--to={size}", "{#}{.}"])
    template.check(rows[0].columns)
    again = [item_of(as_task(task_for(item, BASE))) for item in rows]
    assert [template.render(item) for item in again] == [
        ["resize", "a b.txt", "--to=10", "1a b"],
        ["resize", "-c", "--to=20", "2-c"],
    ]
