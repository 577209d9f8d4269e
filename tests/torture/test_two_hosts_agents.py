"""Budgets and rate limits hold for all hosts together."""

from __future__ import annotations

import time

import pytest

from tests.support import standin
from tests.support.fleet import rows
from tests.support.hosts import Host, need_namespaces, wait_for
from tests.torture.agents import KEY, numbered

COST = 100_000  # of one agent, in millionths
WORKERS = 2  # on each host
HOSTS_AT_WORK = """
SELECT DISTINCT h.name FROM hypervisor.attempts a JOIN hypervisor.workers w ON w.id = a.worker
JOIN hypervisor.hosts h ON h.id = w.leased_by
"""
SPENT = "SELECT sum(cost_micros) FROM hypervisor.sessions"


@pytest.fixture
def provider(tmp_path):
    return tmp_path / "standin" / "provider"


@pytest.fixture
def hosts(tmp_path, postgres_url, provider):
    need_namespaces()
    tables = f'[run]\ngrace = "1s"\n{standin.config(tmp_path / "standin")}'
    started = [Host(tmp_path, name, postgres_url, tables) for name in ("a", "b")]
    for host in started:
        host.env["STANDIN_KEY"] = KEY
        host.start()
    yield started
    for host in started:
        host.kill()


def run(host, tmp_path, name, *words, acts):
    agent = ("--agent", "fake-claude", "--permissions", "full", "--detach")
    items = "\n".join(numbered(acts))
    started = host.inside("run", *agent, "--name", name, *words, cwd=tmp_path, stdin=items)
    assert started.returncode == 0, started.stderr


def lines(path):
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_a_budget_holds_for_both_hosts_together(hosts, tmp_path, postgres_url, provider):
    words = ("--budget", "1.00", "--per-host", str(WORKERS))
    at_once = [f"together-{number}" for number in range(len(hosts) * WORKERS)]
    run(hosts[0], tmp_path, "b", *words, acts=[*at_once, *["ok"] * 36])
    wait_for(lambda: lines(provider / "together") == len(at_once))  # both hosts are at work
    (provider / "go").touch()
    paused = "SELECT 1 FROM hypervisor.events WHERE kind = 'pause'"
    wait_for(lambda: rows(postgres_url, paused))
    working = "SELECT 1 FROM hypervisor.tasks WHERE state = 'in_progress'"
    wait_for(lambda: not rows(postgres_url, working))
    [(spent,)] = rows(postgres_url, SPENT)
    assert 1_000_000 <= spent <= 1_000_000 + len(hosts) * WORKERS * COST
    assert {name for (name,) in rows(postgres_url, HOSTS_AT_WORK)} == {"a", "b"}


def test_a_rate_limit_that_one_host_meets_holds_for_the_other(
    hosts, tmp_path, postgres_url, provider
):
    until = time.time() + 10
    (provider / "limit").write_text(str(until))
    run(hosts[0], tmp_path, "first", "--on", "a", acts=["ok"])
    cooling = "SELECT 1 FROM hypervisor.events WHERE kind = 'cooldown'"
    wait_for(lambda: rows(postgres_url, cooling))
    run(hosts[0], tmp_path, "second", "--on", "b", acts=["ok"])
    left = "SELECT 1 FROM hypervisor.tasks WHERE state <> 'done'"
    wait_for(lambda: not rows(postgres_url, left))
    requests = [line.split() for line in (provider / "requests").read_text().splitlines()]
    refused = [words for words in requests if words[3] == "429"]
    assert len({words[1] for words in refused}) == 1, "the other host asked, too"
    assert all(int(words[0]) >= until * 1000 for words in requests if words not in refused)
    assert {name for (name,) in rows(postgres_url, HOSTS_AT_WORK)} == {"a", "b"}
