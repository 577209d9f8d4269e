"""Hosts: who works on this store, and the load of this host."""

from __future__ import annotations

from hypervisor.monitoring.hosts import hosts
from hypervisor.queue.context import Context
from hypervisor.web.dashboard.page import Page, Request, Values


def load(hv: Context, request: Request) -> Values:
    return {"hosts": hosts(hv)}


PAGES = (Page("/hosts", "hosts", parts={"load": load}),)
