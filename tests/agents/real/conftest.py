"""Fixtures for the tests with real agent CLIs: a scripted model, and projects that use it."""

from __future__ import annotations

import pytest

from tests.agents.real import clis
from tests.agents.real.fleet import AgentProject
from tests.agents.real.model_server import ModelServer
from tests.mcp.conftest import place as place
from tests.mcp.conftest import served as served


@pytest.fixture
def model():
    with ModelServer() as server:
        yield server


@pytest.fixture
def project(tmp_path, model, request):
    """Without the gateway, unless the module or the test has the mark `gateway`."""
    missing = [name for name in clis.NAMES if not clis.installed(name)]
    assert not missing, f"{missing} not in HV_AGENTS_DIR ({clis.folder()}): use make test-agents"
    gateway = request.node.get_closest_marker("gateway") is not None
    made = AgentProject(tmp_path, model, gateway=gateway)
    yield made
    made.close()
