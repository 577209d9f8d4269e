"""Task files in a folder of their own, triaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from hypervisor.inputs.task_files import markdown
from hypervisor.skills.builtin import triage

BODY = "Please look at it.\n"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The run's folder, with its own place for locks."""
    (tmp_path / ".hypervisor").mkdir()
    monkeypatch.chdir(tmp_path)
    for name in ("HV_NOTE", "HV_PROPOSE", "HV_LOCKS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def task(front="", body=BODY, name="task.md"):
    Path(name).write_bytes(f"---\ntitle: A thing\n{front}---\n{body}".encode())
    return name


def fields(name="task.md"):
    return markdown.parse(Path(name).read_bytes()).fields


def twice(name="task.md"):
    """The first answer; a second one must agree with it and change nothing."""
    first = triage.run(name)
    left = Path(name).read_bytes()
    again = triage.run({"path": name})
    assert Path(name).read_bytes() == left
    assert (again["category"], again["changed"], again["receipts"]) == (first["category"], {}, [])
    return first
