"""A bench for workers of agents."""

from __future__ import annotations

import pytest

from tests.agents.agent_bench import AgentBench
from tests.support.benches import closed_after


@pytest.fixture
def bench(tmp_path):
    """Makes one; for other workers a test has a bench of its own."""
    with closed_after(lambda number, **how: AgentBench(tmp_path, **how)) as maker:
        yield maker
