"""Real processes for the torture tests."""

from __future__ import annotations

import pytest

from tests.torture.fleet import Project
from tests.torture.nursery import ForkServer


@pytest.fixture(scope="session")
def shared_nursery():
    made = ForkServer()
    yield made
    made.close()


@pytest.fixture
def nursery(shared_nursery):
    """Starts child processes, all of which end with the test."""
    yield shared_nursery
    shared_nursery.clear()


@pytest.fixture
def project(tmp_path):
    """A project in which batches are run for real; whatever runs in it ends with the test."""
    made = Project(tmp_path)
    yield made
    made.close()
