"""The hosts of a shared store, as a supervisor sees them: what this host leaves to the others, and
its share of the workers of a batch."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hypervisor.queue.sql import hosts as hosts_sql
from hypervisor.runs import placement
from hypervisor.runs.host_keeper import this_host

if TYPE_CHECKING:
    from hypervisor.queue.context import Context
    from hypervisor.queue.host import Host
    from hypervisor.runs.spec import RunSpec

LOOK_MS = 1_000


class Fleet:
    def __init__(self, hv: Context) -> None:
        self._hv, self._me = hv, this_host(hv)
        self._live: list[Host] = []
        self._looked_at = 0
        self.refused: dict[str, str] = {}  # batches that this host cannot work on, and why

    def begin(self, now: int) -> None:
        """Look at the other hosts, at most once a second."""
        if not 0 <= now - self._looked_at < LOOK_MS:
            self._looked_at = now
            hosts = self._hv.store.read(hosts_sql.hosts)
            self._live = [host for host in hosts if placement.is_live(host, now)]
            self.refused.clear()

    def accepts(self, batch: str, spec: RunSpec) -> bool:
        """Whether this host has what the batch needs; `refused` says why not."""
        if batch not in self.refused and (why := self._reason(spec)):
            self.refused[batch] = why
        return batch not in self.refused

    def _reason(self, spec: RunSpec) -> str:
        problem = self._hv.repository_problem(spec) if spec.git.exchange else None
        if problem:
            return problem
        if problem is None and spec.cwd and not os.path.isdir(spec.cwd):
            return (
                f"has no {spec.cwd}; mount or clone the project there, set `exchange` under "
                "[workspace] in config.toml, or choose other hosts with --on"
            )
        me = next((host for host in self._live if host.id == self._me), None)
        if me is not None and not placement.has_agent(me, spec):
            return "has none of its agents installed"
        return placement.lacking_memory(spec, self._me, self._live)

    def share_of_agent(self, name: str, total: int) -> int:
        """The part of an agent's workers that this host may have."""
        able = [host for host in self._live if name in (host.resources.get("agents") or ())]
        return placement.even_share(self._me, able, total)

    def share(self, batch: str, spec: RunSpec, total: int | None, usual: int, work: int) -> int:
        """How many workers of a batch may run here. `total`: on all hosts together."""
        able = [host for host in self._live if placement.can_serve(host, batch, spec)]
        need = placement.Need(total, spec.per_host, work)
        return placement.share_of(self._me, able, need, spec, usual)
