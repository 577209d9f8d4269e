"""Real processes for the torture tests."""

from __future__ import annotations

import pytest

from tests.torture.fleet import Project
from tests.torture.fork_server import ForkServer


@pytest.fixture(scope="session")
def shared_fork_server():
    made = ForkServer()
    yield made
    made.close()


@pytest.fixture
def fork_server(shared_fork_server):
    """Starts child processes, all of which end with the test."""
    yield shared_fork_server
    shared_fork_server.clear()


@pytest.fixture
def project(tmp_path):
    """A project in which batches are run for real; whatever runs in it ends with the test."""
    made = Project(tmp_path)
    yield made
    made.close()
