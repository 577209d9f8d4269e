"""A simulated host that consists of files."""

import pytest

from tests.resources.made_up_host import Machine


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)
