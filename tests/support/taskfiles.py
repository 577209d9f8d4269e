"""What the tests of task files share: receipts, edits, and an owner who saves at the same time."""

from __future__ import annotations

import os
from pathlib import Path

from hypervisor.queue.receipt import GENESIS, ChainHead, Entry, seal


def chain(*texts):
    head, made = ChainHead("c", 0, GENESIS), []
    for text in texts:
        made.append(seal(head, Entry("t", 1, "w", text), 0))
        head = ChainHead("c", made[-1].number, made[-1].hash)
    return made


THREE = chain("one", "two", "three")


def add(text):
    return lambda data: data + text


def names(folder):
    return sorted(os.listdir(folder))


def replace(path, data):
    """As a careful editor saves."""
    fresh = f"{path}.theirs"
    Path(fresh).write_bytes(data)
    os.rename(fresh, path)
