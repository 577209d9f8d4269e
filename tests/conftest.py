"""Fixtures for all tests: a PostgreSQL server for the session, a ledger on either database."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.databases import DATABASES, Postgres, PostgresServer, Sqlite
from tests.support.verbs import add, claim, settle  # noqa: F401 (fixtures)

# Speed depends on what else runs on this machine.
settings.register_profile("here", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("here")

HERE = Path(__file__).parent
# Where tests are distributed by file (`make test`), these start first, so that no long one is left
# for the end. The slowest is first.
SLOWEST = (
    "queue/test_state_machine.py",
    "torture/test_kill_storm.py",
    "git/test_merge_queue_killed.py",
    "torture/test_run_supervisor.py",
    "torture/test_agents_limits.py",
    "torture/test_agents_killed.py",
    "torture/test_apply_killed.py",
    "torture/test_agents_outcomes.py",
    "torture/test_run_tree.py",
    "torture/test_agents_pull.py",
    "torture/test_run_overseer.py",
    "torture/test_acknowledged.py",
    "torture/test_run_killed.py",
    "test_tutorials.py",
    "test_bootstrap.py",
    "cli/test_run_reduce.py",
    "cli/test_run.py",
    "cli/test_run_steered.py",
    "cli/test_skills.py",
    "torture/test_exactly_once.py",
    "cli/test_live.py",
    "mcp/test_spawn.py",
    "mcp/test_waiting.py",
    "mcp/test_worker.py",
    "cli/test_run_reduce_shown.py",
    "mcp/test_shared_server.py",
    "mcp/test_pipe.py",
    "cli/test_run_agents.py",
    "cli/test_wrong_usage.py",
    "cli/test_bad_input.py",
    "torture/test_run_governor.py",
    "torture/test_notify_killed.py",
    "runs/processes/test_tree.py",
    "runs/processes/test_leftovers.py",
    "inputs/task_files/test_owner.py",
    "cli/test_skills_kept.py",
    "cli/test_bulk.py",
    "skills/test_builtin.py",
    "learning/test_policy.py",
)


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true", help="also run what takes minutes")
    parser.addoption("--agents", action="store_true", help="also run the real agent CLIs")
    parser.addoption("--cluster", action="store_true", help="also run hosts in namespaces")
    parser.addoption("--install", action="store_true", help="also build and install the package")
    parser.addoption("--web", action="store_true", help="also run what needs a browser")
    parser.addoption("--machine-seed", type=int, help="repeat the state machine from this seed")


def pytest_configure(config):
    # Started in the background, we ignore Ctrl-C, and so would every program under test.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config, items):
    for option in ("long", "agents", "cluster", "install", "web"):
        if not config.getoption(f"--{option}"):
            for item in items:
                if item.get_closest_marker(option):
                    item.add_marker(pytest.mark.skip(reason=f"runs with --{option} only"))
    if hasattr(config, "workerinput"):
        turns = {HERE / name: turn for turn, name in enumerate(SLOWEST)}
        items.sort(key=lambda item: turns.get(item.path, len(turns)))


@pytest.fixture(scope="session")
def long(request):
    """Whether --long was given."""
    return request.config.getoption("--long")


@pytest.fixture(scope="session")
def postgres_server():
    server = PostgresServer()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def postgres_url(postgres_server):
    """A fresh database of its own for this test."""
    url = postgres_server.new_database()
    yield url
    postgres_server.drop_database(url)


@pytest.fixture(scope="session")
def shared_postgres(postgres_server):
    """One store for all tests that start by wiping it, which is quicker than making one."""
    made = Postgres(postgres_server.new_database())
    yield made
    made.close()


@pytest.fixture(params=DATABASES)
def store(request, tmp_path):
    """An empty store, once on each database, with a direct connection to it."""
    if request.param == "sqlite":
        made = Sqlite(tmp_path / "store.db")
        yield made
        made.close()
    else:
        made = request.getfixturevalue("shared_postgres")
        made.wipe()
        yield made
        # PostgreSQL does not check its hot tables at each write: the tests do it here.
        assert made.integrity() == "ok"


@pytest.fixture
def open_ledger(store):
    """Opens further ledgers on the same store."""
    opened = []

    def opener():
        opened.append(store.open())
        return opened[-1]

    yield opener
    for ledger in opened:
        ledger.close()


@pytest.fixture
def ledger(open_ledger):
    return open_ledger()
