"""A gateway in front of a scripted model."""

from __future__ import annotations

import pytest

from tests.agents.gateway.gateway_bench import GatewayBench
from tests.agents.real.model_server import ModelServer


@pytest.fixture
def model():
    with ModelServer(keep_bodies=True) as server:
        yield server


@pytest.fixture
def gateway(tmp_path, model):
    made = GatewayBench(tmp_path, model)
    yield made
    made.close()
