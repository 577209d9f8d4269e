"""Values that chunks are made by: the date of an item, and its fields."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypervisor.inputs.items import MailItem, TaskItem, column_text, day_of, occurrences, task_for
from hypervisor.inputs.template import Item
from hypervisor.queue.task import NewTask


@pytest.mark.parametrize(
    "value, day",
    [
        ("2026-11-16", "2026-11-16"),
        ("2026-11-16T23:59:00-11:00", "2026-11-16"),  # as it is written
        ("2026-11-16 08:00:00", "2026-11-16"),
        ("20261116", "2026-11-16"),
        (20261116, "2026-11-16"),
        ("2026-11", "2026-11-01"),
        ("Mon, 16 Nov 2026 10:00:00 +0100", "2026-11-16"),
        (1794787200, "2026-11-16"),
        ("1794787200000", "2026-11-16"),
        (1794787200.5, "2026-11-16"),
        ("99999999999999", None),
        ("yesterday", None),
        ("", None),
        (None, None),
        (True, None),
        ([], None),
        ("2026-13-01", None),
        ("\ud800", None),
        (float("inf"), None),
    ],
)
def test_the_day_of_an_item(value, day):
    found = day_of(Item("no such file", 1, {"date": value}))
    assert found == day or (value == "99999999999999" and found is not None)


def test_which_date_counts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "a"
    path.touch()
    os.utime(path, (0, 86_400 * 365 * 10))
    columns = {"due": "2001-01-01", "timestamp": "2003-01-01", "created": "2002-01-01"}
    assert day_of(Item(str(path), 1, {**columns, "date": "2004-01-01"})) == "2004-01-01"
    assert day_of(Item(str(path), 1, {**columns, "date": ""})) == "2002-01-01"
    assert day_of(Item(str(path), 1, {**columns, "created": "?"})) == "2003-01-01"
    assert day_of(Item(str(path), 1, {"due": "2001-01-01"})) == "1979-12-30"
    assert day_of(Item(str(path))) == "1979-12-30"
    for text in (str(tmp_path), "nothing", "a\0b", "x" * 10_000):
        assert day_of(Item(text)) is None


@given(st.text() | st.integers() | st.floats() | st.none())
def test_any_date_is_a_day_or_none(value):
    day = day_of(Item("no such file", 1, {"date": value}))
    assert day is None or len(day) == 10


def test_a_field_of_an_item():
    columns = {"a": "x", "n": 7, "l": ["b", 2, None], "none": None, "d": {"k": [1]}, "from": "ann"}
    item = Item("t", 1, columns)
    names = ["a", "n", "l", "none", "d", "missing", "sender", "from"]
    assert [column_text(item, name) for name in names] == [
        "x",
        "7",
        "b, 2",
        "",
        '{"k":[1]}',
        "",
        "ann",
        "ann",
    ]
    assert column_text(Item("t", 1, {"sender": "bob", "from": "ann"}), "sender") == "bob"
    assert column_text(Item("t"), "a") == ""


def key(item):
    return task_for(item, NewTask("")).key


def test_what_makes_an_item_another_one():
    first, second = {"path": "a.md", "status": "active"}, {"path": "a.md", "status": "done"}
    assert key(Item("a.md", 1, first)) != key(Item("a.md", 1, second))
    assert key(TaskItem("a.md", 1, first)) == key(TaskItem("a.md", 2, second)) == "a.md"
    here, there = {"subject": "x", "mailbox": "a", "offset": 1}, {"subject": "x", "path": "b"}
    assert key(MailItem("<1>", 1, here)) == key(MailItem("<1>", 1, there))
    assert key(MailItem("<1>", 1, here)) != key(MailItem("<1>", 1, {**here, "subject": "y"}))
    twice = [MailItem("<1>", 1, here), MailItem("<1>", 2, there)]
    assert [times for _, times in occurrences(twice)] == [1, 2]
    assert type(TaskItem("a")._replace(number=2)) is TaskItem
