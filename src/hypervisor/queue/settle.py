"""Ending attempts and claiming the next tasks, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypervisor.core import randomness
from hypervisor.queue.lease import AttemptResult, ClaimRequest, Lease, SettledResult, Worker
from hypervisor.queue.sql import claims, settlement
from hypervisor.queue.sql.fast_path import fast_path, outcome
from hypervisor.queue.sql.lanes import LaneBook
from hypervisor.store.database import Database, Session, slices

MAX_UNANSWERED = 10_000


class ClaimMemory:
    """A process's record of its own claims."""

    def __init__(self) -> None:
        self.workers: set[str] = set()  # known to be in the store
        self.agents: set[str] = set()  # those whose agents claim tasks themselves
        self.unanswered: list[str] = []  # nonces of claims whose answer was lost

    def rolled_back(self) -> None:
        """All of it is still true."""


def settle(
    store: Database,
    verdicts: Sequence[AttemptResult],
    now: int,
    check: Callable[[Session, str], bool] | None = None,
) -> list[SettledResult]:
    """End attempts; none if `check` returns False for one of their batches."""
    return _general_path(store, verdicts, None, [], now=now, check=check)[0]


def settle_and_claim(
    store: Database, verdicts: Sequence[AttemptResult], request: ClaimRequest | None, now: int
) -> tuple[list[SettledResult], list[Lease]]:
    """End attempts and claim the next tasks with one commit.

    A second one is made only if the fast path ended an attempt but found no task.
    """
    if request is None:
        return settle(store, verdicts, now), []
    memory = store.caches.of(ClaimMemory)
    _register_worker(store, memory, request.worker, now)
    nonces = randomness.nonces(request.limit)
    settled: list[SettledResult] = []
    try:
        if not memory.unanswered and request.worker.id not in memory.agents:
            book = store.caches.of(LaneBook)
            path = fast_path(book, verdicts, request, nonces[0], now)
            row = store.run(path) if path else None
            if path and row:
                settled, leases = outcome(store, path, row)
                if leases:
                    return settled, leases
        return _general_path(store, verdicts, request, nonces, settled=settled, now=now)
    except BaseException:
        memory.unanswered = [*memory.unanswered, *nonces][-MAX_UNANSWERED:]
        raise


def remember_worker(store: Database, worker: str, keeps_agent: bool) -> None:
    """Note that a worker is in the store, and whether its agent claims tasks itself."""
    memory = store.caches.of(ClaimMemory)
    memory.workers.add(worker)
    if keeps_agent:
        memory.agents.add(worker)


def _general_path(
    store: Database,
    verdicts: Sequence[AttemptResult],
    request: ClaimRequest | None,
    nonces: list[str],
    *,
    settled: Sequence[SettledResult] = (),
    now: int,
    check: Callable[[Session, str], bool] | None = None,
) -> tuple[list[SettledResult], list[Lease]]:
    """End the attempts unless they are already `settled`, and claim, with general statements."""
    memory = store.caches.of(ClaimMemory)
    unanswered = list(memory.unanswered)

    def work(session: Session) -> tuple[list[SettledResult], list[claims.Claimed]]:
        _release_unanswered(session, memory, unanswered, now)
        ended = list(settled) or settlement.settle(session, verdicts, now, check)
        claimed = claims.claim(session, request, nonces, now) if request else []
        if request and request.worker.id in memory.agents:
            from hypervisor.queue.sql import agent_claims

            agent_claims.add(session, request.worker.id, [claim.token for claim in claimed])
        return ended, claimed

    ended, claimed = store.write(work)
    if unanswered:
        memory.unanswered = [nonce for nonce in memory.unanswered if nonce not in unanswered]
    return ended, [claims.lease(claim, request, now) for claim in claimed if request]


def _release_unanswered(
    session: Session, memory: ClaimMemory, unanswered: list[str], now: int
) -> None:
    """Release claims that may have been made although their answer was lost (a broken connection,
    a disk that did not confirm): their tokens are unknown."""
    for nonces in slices(unanswered):
        for task, attempt in claims.live_with_nonces(session, nonces, memory.workers):
            settlement.end_without_token(
                session, task, attempt, "release", "the answer to the claim was lost", now=now
            )


def _register_worker(store: Database, memory: ClaimMemory, worker: Worker, now: int) -> None:
    """Store a worker, once per process, before its first claim."""
    if worker.id not in memory.workers:
        agent = store.write_unsynced(claims.worker_seen, worker, now)
        remember_worker(store, worker.id, bool(agent))
