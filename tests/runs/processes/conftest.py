"""Process trees for the tests of stopping them."""

from __future__ import annotations

import pytest

from hypervisor.runs.processes import kill
from tests.runs.processes.forest import PATIENCE, Forest


@pytest.fixture
def forest(tmp_path, monkeypatch):
    monkeypatch.setattr(kill, "PATIENCE", PATIENCE)
    made = Forest(tmp_path.resolve())
    yield made
    made.fell()
