"""Names of files that are not UTF-8, as tasks keep them."""

import json
import os

import pytest

from hypervisor.inputs.item_names import printable_path, text_in_data
from hypervisor.inputs.items import TaskItem, item_of, task_for
from hypervisor.inputs.template import Item
from hypervisor.queue.add import check_task
from tests.inputs.some_items import BASE
from tests.inputs.test_item_tasks import as_task


@pytest.mark.parametrize("kind", [Item, TaskItem])
def test_a_name_that_is_not_utf8_is_kept_as_valid_text(kind):
    name = os.fsdecode(b"d/caf\xe9.md")
    item = kind(name, 3, None if kind is Item else {"path": name, "title": "x"})
    task = check_task(task_for(item, BASE))
    stored = json.dumps([task.title, task.key, task.data], ensure_ascii=False)
    assert stored.encode() and task.title == task.data["item"] == r"d/caf\xe9.md"
    assert tuple(item_of(as_task(task))) == tuple(item)


def test_names_that_look_alike_have_different_keys():
    raw, shown = os.fsdecode(b"caf\xe9"), r"caf\xe9"
    keys = {task_for(Item(text), BASE).key for text in (raw, shown, os.fsdecode(b"caf\xe8"))}
    assert len(keys) == 3


@pytest.mark.parametrize(
    "data, text",
    [
        ({"item": "a"}, "a"),
        ({"item": r"\xff", "item_bytes": "/w=="}, "\udcff"),
        ({"item": "a", "item_bytes": "not base64"}, "a"),
        ({"item": "a", "item_bytes": 5}, "a"),
        ({"item_bytes": "/w=="}, None),
        ({"item": 5}, None),
        (None, None),
    ],
)
def test_the_text_in_the_data_of_a_task(data, text):
    assert text_in_data(data) == text


def test_anything_can_be_shown():
    for text in ("plain", "grün", "\udce9", "\ud800", "\udce9\ud800"):
        assert printable_path(text).encode()
