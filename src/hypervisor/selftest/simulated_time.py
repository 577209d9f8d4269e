"""A PostgreSQL database whose users live in simulated time."""

from __future__ import annotations

from hypervisor.selftest import sql
from hypervisor.selftest.simulated_host import START, SimulatedClocks
from hypervisor.store.postgres import PostgresDatabase


class PostgresInSimulatedTime(PostgresDatabase):
    """Empty at first. Its clock cannot be set: the hosts follow that of the server."""

    def __init__(self, url: str, clocks: SimulatedClocks) -> None:
        self._clocks = clocks
        super().__init__(url, relaxed=True)
        self.write(sql.wipe)
        self.caches.rolled_back()

    def now(self) -> int:
        return START + self._clocks.steady()
