"""A folder with a task file, and helpers that change it."""

from __future__ import annotations

import pytest

from hypervisor.inputs.task_files.files import TaskFiles


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "tasks"
    made.mkdir()
    return made


@pytest.fixture
def path(folder):
    made = folder / "task.md"
    made.write_bytes(b"old")
    return made


@pytest.fixture
def files(tmp_path):
    return TaskFiles(str(tmp_path / "locks" / "here"))
