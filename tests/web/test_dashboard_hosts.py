"""The page about hosts shows what `hv cluster status` shows."""

from __future__ import annotations

import re

import hypervisor
from hypervisor.cluster.status import cluster_status
from hypervisor.queue.host import Registration
from hypervisor.queue.sql import hosts
from tests.web.dashboards import Browser

USUAL = {"python": "3.11.7", "hypervisor": "1.0"}


def test_hosts_of_a_shared_store_with_what_differs(postgres_url, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr("hypervisor.cluster.ray_commands.ray_version", lambda: "")
    with hypervisor.open(postgres_url) as hv:
        for name, python in (("ada", "3.11.7"), ("bob", "3.12.1"), ("cyd", "3.11.9")):
            host = Registration(f"{name}-1", name, f"boot of {name}", 1, 1, 60_000, "ray:node")
            versions = {**USUAL, "python": python}
            hv.store.write(hosts.register, host._replace(versions=versions))
        hv.store.write(hosts.set_state, "cyd-1", "draining", "ada", 0)
        shown = [
            (each.host.name, each.host.state, each.differs) for each in cluster_status(hv).hosts
        ]
        assert shown == [
            ("ada", "up", ()),
            ("bob", "up", ("python 3.12.1, others 3.11",)),
            ("cyd", "draining", ()),
        ]
        page = Browser(hv).get("/hosts").text
        rows = [re.sub("<[^>]*>", "|", row) for row in re.findall("<tr>(.*?)</tr>", page)]
        assert len([row for row in rows if "|ray|" in row]) == 3
        assert any("|bob|" in row and "python 3.12.1, others 3.11" in row for row in rows)
        assert any("|cyd|" in row and "|draining|" in row for row in rows)
