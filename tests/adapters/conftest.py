"""Process trees for the tests of what ends them."""

from __future__ import annotations

import pytest

from hypervisor.adapters import ending
from tests.adapters.forest import PATIENCE, Forest


@pytest.fixture
def forest(tmp_path, monkeypatch):
    monkeypatch.setattr(ending, "PATIENCE", PATIENCE)
    made = Forest(tmp_path.resolve())
    yield made
    made.fell()
