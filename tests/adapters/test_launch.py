"""What a supervisor leaves in the runtime folder when it ends."""

from __future__ import annotations

import os

import pytest

from hypervisor.adapters.launch import LocalLauncher
from hypervisor.adapters.places import Places


@pytest.fixture
def launcher(tmp_path):
    return LocalLauncher("nowhere", Places(str(tmp_path), str(tmp_path / "run" / "store")))


def test_nothing_that_was_kept_for_workers_is_left(launcher):
    launcher.keep_environment("b1")
    launcher.tell({"target": 2})
    with open(os.path.join(launcher.places.runtime, "governor.json.new"), "w") as file:
        file.write('{"tar')  # it was killed while it wrote
    launcher.tidy()
    assert os.listdir(launcher.places.runtime) == []


def test_what_a_client_removes_meanwhile_keeps_nothing_else_there(launcher, monkeypatch):
    launcher.keep_environment("b2")
    launcher.tell({"target": 2})
    listed = ["gone.env", *os.listdir(launcher.places.runtime)]
    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", lambda path: listed)
        launcher.tidy()
    assert os.listdir(launcher.places.runtime) == []


def test_nothing_to_tidy_is_fine(launcher):
    launcher.tidy()
