"""Real processes for the torture tests."""

from __future__ import annotations

import pytest

from hypervisor.selftest.crew import ForkServer
from tests.torture.fleet import Project


@pytest.fixture(scope="session")
def shared_fork_server():
    made = ForkServer("tests.torture.jobs")
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
