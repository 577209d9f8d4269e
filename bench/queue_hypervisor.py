"""Hypervisor by its public API: events and attempts written, finish and claim in one call."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from bench.queue_systems import groups


class HypervisorQueue:
    def __init__(self, store: str, relaxed: bool, k: int, seat: int) -> None:
        import hypervisor

        self._hv = hypervisor.open(store, relaxed=relaxed)
        self._task = hypervisor.NewTask
        self._k = k
        self._worker = f"bench-{seat}"

    def put(self, items: Sequence[int]) -> None:
        for some in groups(items, self._k):
            self._hv.add([self._task(str(item)) for item in some])

    def drain(self) -> list[int]:
        done: list[int] = []
        leases = self._hv.claim(self._worker, limit=self._k)
        while leases:
            ended = [(lease.token, None) for lease in leases]
            settled, following = self._hv.complete_and_claim(ended, self._worker, limit=self._k)
            ok = {answer.task for answer in settled if not answer.lost and not answer.repeated}
            done += [int(lease.task.title) for lease in leases if lease.task.id in ok]
            leases = following
        return done

    def close(self) -> None:
        self._hv.close()


class Hypervisor(NamedTuple):
    k: int
    relaxed: bool = False
    postgres: bool = False
    pace: float = 1

    @property
    def name(self) -> str:
        kind = "PostgreSQL" if self.postgres else "relaxed" if self.relaxed else "durable"
        return f"Hypervisor {kind} k={self.k}"

    @property
    def group(self) -> str:
        return "postgres" if self.postgres else "relaxed" if self.relaxed else "durable"

    def create(self, where: str) -> None:
        self.open(where, 0).close()

    def open(self, where: str, seat: int) -> HypervisorQueue:
        store = where if self.postgres else os.path.join(where, "store.db")
        return HypervisorQueue(store, self.relaxed, self.k, seat)
