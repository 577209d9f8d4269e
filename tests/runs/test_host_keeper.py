"""The host of a supervisor in the store."""

from __future__ import annotations

import os

from hypervisor.agents.host_facts import with_agents
from hypervisor.queue.sql import hosts
from hypervisor.runs.host_keeper import host_facts
from tests.support.stage import worker_of


def test_a_supervisor_registers_its_host_once_and_then_writes_nothing(make):
    stage = make()
    stage.tick()
    [host] = stage.store.read(hosts.hosts)
    assert (host.name, host.boot, host.state) == ("host", "this boot", "up")
    assert (host.pid, host.lease_until, host.launcher) == (os.getpid(), 0, "local")
    assert host.resources["cpus"] > 0 and host.resources["memory"] > 0
    assert {*host.versions} == {"hypervisor"}
    stage.tick(after=10**6)
    assert stage.store.read(hosts.hosts) == [host]


def test_a_host_leaves_with_its_supervisor_unless_workers_run(make):
    stage = make()
    stage.batch("b")
    stage.settle()
    keeper = stage.supervisor.parts[-1]
    keeper.last_look()
    assert stage.store.read(hosts.hosts)[0].state == "up"
    stage.store.retire(worker_of(100).id, stage.now)
    keeper.last_look()
    assert stage.store.read(hosts.hosts)[0].state == "gone"
    stage.tick()
    assert stage.store.read(hosts.hosts)[0].state == "up"


def test_a_host_of_a_shared_store_names_its_agents(make, tmp_path, monkeypatch):
    stage = make()
    (tmp_path / "claude").write_text("#!/bin/sh\n")
    (tmp_path / "claude").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    facts = with_agents(stage.hv, host_facts(stage.hv))
    assert facts.resources["agents"] == ["claude"] and facts.resources["gpus"] >= 0
    assert facts.versions["python"]
