"""The capacity model of docs/scale.md: what a fleet of a given size asks of one PostgreSQL.

Pure: costs go in, what they add up to comes out.
"""

from __future__ import annotations

from typing import NamedTuple

DAY = 86_400
RENEWALS_PER_LEASE = 6
LEASE = 60.0  # seconds
LOOKS = 4.0  # ticks of a busy supervisor per second


class Costs(NamedTuple):
    """Of one PostgreSQL, measured. A turn completes one task and claims the next."""

    turn_ms: float  # CPU of the server
    turn_wal: float  # bytes
    add_ms: float
    add_wal: float
    renew_ms: float
    renew_wal: float
    tick_ms: float  # what a busy supervisor reads per tick
    task_bytes: float  # on disk, with its attempt, events and indexes
    connection_bytes: float


class Fleet(NamedTuple):
    agents: int
    hosts: int
    task_minutes: float

    @property
    def tasks_per_second(self) -> float:
        return self.agents / (self.task_minutes * 60)


class Load(NamedTuple):
    tasks_per_second: float
    tasks_per_day: float
    renewals_per_second: float
    cores: float  # of the server
    wal_per_second: float  # bytes
    disk_per_day: float  # bytes
    connections: int
    connection_memory: float  # bytes


def load(fleet: Fleet, costs: Costs) -> Load:
    """One connection for each worker, and two for each supervisor."""
    tasks = fleet.tasks_per_second
    renewals = fleet.hosts * RENEWALS_PER_LEASE / LEASE
    ticks = fleet.hosts * LOOKS
    cpu = tasks * (costs.turn_ms + costs.add_ms) + renewals * costs.renew_ms + ticks * costs.tick_ms
    wal = tasks * (costs.turn_wal + costs.add_wal) + renewals * costs.renew_wal
    connections = fleet.agents + 2 * fleet.hosts
    return Load(
        tasks,
        tasks * DAY,
        renewals,
        cpu / 1000,
        wal,
        tasks * DAY * costs.task_bytes,
        connections,
        connections * costs.connection_bytes,
    )
