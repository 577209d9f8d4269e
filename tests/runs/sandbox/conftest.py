"""Projects whose attempts attack, and what they aim at."""

from __future__ import annotations

import pytest

from tests.support.targets import Targets
from tests.support.ungoverned import UNGOVERNED
from tests.torture.fleet import Project


@pytest.fixture
def project(tmp_path):
    made = Project(tmp_path, UNGOVERNED)
    yield made
    made.close()


@pytest.fixture
def targets(project):
    made = Targets(project)
    yield made
    made.close()
