"""How many verifications run at a time, and with which environment."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from hypervisor.git.parallel import Parallel
from hypervisor.git.verify_environment import verify_environment
from hypervisor.queue.context import Context
from hypervisor.runs.spec import AgentSpec, CommandSpec, RunSpec


def context(status: dict[str, Any], environment: dict[str, str] | None = None) -> Context:
    launcher = SimpleNamespace(read_status=lambda: status, environment=lambda batch: environment)
    settings = SimpleNamespace(workers=4, merge_env=("DATABASE_URL",))
    return cast(Context, SimpleNamespace(launcher=launcher, settings=settings))


@pytest.mark.parametrize(
    ("status", "width"),
    [
        ({"zone": "safe", "workers": 0}, 4),
        ({"zone": "safe", "workers": 3}, 1),
        ({"zone": "warning", "workers": 0}, 2),
        ({"zone": "danger", "workers": 0}, 1),
        ({"zone": "safe", "workers": 9}, 1),
    ],
)
def test_a_lane_verifies_as_much_as_the_governor_admits_and_always_one(status, width):
    assert Parallel(context(status)).width("lane") == width


def test_other_lanes_take_room_but_not_the_last():
    parallel = Parallel(context({"zone": "safe", "workers": 0}))
    with parallel.running("other"), parallel.running("other"), parallel.running("lane"):
        assert (parallel.width("lane"), parallel.width("other")) == (2, 3)
    assert parallel.width("lane") == 4


def test_work_of_agents_is_verified_without_the_secrets_of_the_user():
    given = {"PATH": "/bin", "LC_ALL": "C", "API_KEY": "secret", "DATABASE_URL": "db"}
    agent = RunSpec("/", AgentSpec("claude"))
    env = verify_environment(context({}, given), agent, "b")
    assert env == {"PATH": "/bin", "LC_ALL": "C", "DATABASE_URL": "db", "HV_BATCH": "b"}
    command = RunSpec("/", CommandSpec(("true",)))
    assert verify_environment(context({}, given), command, "b")["API_KEY"] == "secret"
