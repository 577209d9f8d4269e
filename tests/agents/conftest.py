"""A bench for workers of agents."""

from __future__ import annotations

import pytest

from tests.agents.agent_bench import AgentBench
from tests.support.benches import closed_after


@pytest.fixture
def bench(tmp_path):
    """Creates one; tests of other workers have their own."""
    with closed_after(lambda number, **how: AgentBench(tmp_path, **how)) as maker:
        yield maker
