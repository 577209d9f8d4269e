"""What tasks, leases and ticks cost one PostgreSQL: CPU, log, disk and memory."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bench.scale_model import Costs
from bench.support import Server

HERTZ = os.sysconf("SC_CLK_TCK")


class Meter:
    """What a server has used since."""

    def __init__(self, server: Server, data: Path, database: str) -> None:
        self._url, self._data = server.url(database), data
        self._cpu, self._wal, self._at = self._look()

    def since(self) -> tuple[float, float, float]:
        """CPU in ms, log in bytes, seconds."""
        cpu, wal, at = self._look()
        return cpu - self._cpu, wal - self._wal, at - self._at

    def _look(self) -> tuple[float, float, float]:
        import psycopg

        with psycopg.connect(self._url, autocommit=True) as connection:
            row = connection.execute(
                "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"
            ).fetchone()
        assert row is not None
        return server_cpu(self._data), float(row[0]), time.monotonic()


def server_cpu(data: Path) -> float:
    """The CPU time in ms of the postmaster and all its processes, also of those that have ended."""
    postmaster = int((data / "postmaster.pid").read_text().split()[0])
    total = 0.0
    for pid in (postmaster, *children(postmaster)):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        own = fields[11:15] if pid == postmaster else fields[11:13]
        total += sum(map(int, own)) * 1000 / HERTZ
    return total


def children(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").iterdir():
        yield from map(int, (task / "children").read_text().split())


class Measured(NamedTuple):
    costs: Costs
    tasks: int


def measure_costs(server: Server, data: Path, items: int) -> Measured:
    import hypervisor
    from hypervisor.queue.host import HostStatus
    from hypervisor.queue.sql import hosts as hosts_sql
    from hypervisor.runs import sql

    with hypervisor.open(server.fresh("costs")) as hv:
        meter = Meter(server, data, "costs")
        for number in range(items):
            hv.add([hypervisor.NewTask(f"task {number}")])
        add_ms, add_wal, _ = meter.since()
        server.calm("costs")
        meter = Meter(server, data, "costs")
        leases = hv.claim("w")
        while leases:
            _, leases = hv.complete_and_claim([(leases[0].token, None)], "w")
        turn_ms, turn_wal, _ = meter.since()
        register(hv, 1)
        meter, status = (
            Meter(server, data, "costs"),
            HostStatus("safe", 5, {"cpu": 0.3, "ram": 0.4}),
        )
        for _ in range(items):
            hv.store.write_unsynced(hosts_sql.renew, "host-0", 1, status)
        renew_ms, renew_wal, _ = meter.since()
        meter = Meter(server, data, "costs")
        for _ in range(items):
            hv.store.read(sql.ready, None), hv.store.read(sql.at_work, "boot")
        tick_ms, _, _ = meter.since()
        memory = private_memory(hv.store.read(lambda s: s.rows("SELECT pg_backend_pid()"))[0][0])
        disk = hv.store.read(lambda s: s.rows("SELECT pg_database_size(current_database())"))[0][0]
    empty = _empty_size(server)
    each = (turn_ms, turn_wal, add_ms, add_wal, renew_ms, renew_wal, tick_ms, disk - empty)
    return Measured(Costs(*(value / items for value in each), memory), items)


def _empty_size(server: Server) -> int:
    import hypervisor

    with hypervisor.open(server.fresh("empty")) as hv:
        return int(
            hv.store.read(lambda s: s.rows("SELECT pg_database_size(current_database())"))[0][0]
        )


def private_memory(pid: int) -> float:
    """Of the server's process for a connection that has worked, in bytes."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    private = [int(line.split()[1]) for line in lines if line.startswith("Private_")]
    return sum(private) * 1024.0


def register(hv: Any, count: int) -> None:
    from hypervisor.queue.host import Registration
    from hypervisor.queue.sql import hosts as hosts_sql

    for number in range(count):
        host = Registration(f"host-{number}", f"host-{number}", f"boot-{number}", 1, 1, 60_000)
        hv.store.write_unsynced(hosts_sql.register, host)
