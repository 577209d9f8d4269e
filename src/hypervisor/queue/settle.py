"""Ending attempts and claiming the next tasks, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypervisor.core import randomness
from hypervisor.queue.lease import AttemptResult, ClaimRequest, Lease, Settled, Worker
from hypervisor.queue.sql import agent_claims, claims, settlement
from hypervisor.queue.sql.fast_path import fast_path, outcome
from hypervisor.queue.sql.lanes import LaneBook
from hypervisor.store.database import Database, Session, slices

MOST_UNANSWERED = 10_000


class ClaimMemory:
    """What a process remembers of its own claims."""

    def __init__(self) -> None:
        self.workers: set[str] = set()  # that are in the store
        self.agents: set[str] = set()  # those of them that keep an agent
        self.unanswered: list[str] = []  # nonces of claims whose answer was lost

    def rolled_back(self) -> None:
        """All of it stays true."""


def settle(
    store: Database,
    verdicts: Sequence[AttemptResult],
    now: int,
    check: Callable[[Session], bool] | None = None,
) -> list[Settled]:
    """End attempts; none if `check` says no in the same transaction."""
    return _general_path(store, verdicts, None, [], now=now, check=check)[0]


def settle_and_claim(
    store: Database, verdicts: Sequence[AttemptResult], request: ClaimRequest | None, now: int
) -> tuple[list[Settled], list[Lease]]:
    """End attempts and claim the next tasks with one commit.

    Only if the fast path ended an attempt but found no task, a second transaction looks for one.
    """
    if request is None:
        return settle(store, verdicts, now), []
    memory = store.memories.of(ClaimMemory)
    _register_worker(store, memory, request.worker, now)
    nonces = randomness.nonces(request.limit)
    settled: list[Settled] = []
    try:
        if not memory.unanswered and request.worker.id not in memory.agents:
            book = store.memories.of(LaneBook)
            path = fast_path(book, verdicts, request, nonces[0], now)
            row = store.run(path) if path else None
            if path and row:
                settled, leases = outcome(store, path, row)
                if leases:
                    return settled, leases
        return _general_path(store, verdicts, request, nonces, settled=settled, now=now)
    except BaseException:
        memory.unanswered = [*memory.unanswered, *nonces][-MOST_UNANSWERED:]
        raise


def remember_worker(store: Database, worker: str, keeps_agent: bool) -> None:
    """Note that a worker is in the store; the claims of one that keeps an agent are listed."""
    memory = store.memories.of(ClaimMemory)
    memory.workers.add(worker)
    if keeps_agent:
        memory.agents.add(worker)


def _general_path(
    store: Database,
    verdicts: Sequence[AttemptResult],
    request: ClaimRequest | None,
    nonces: list[str],
    *,
    settled: Sequence[Settled] = (),
    now: int,
    check: Callable[[Session], bool] | None = None,
) -> tuple[list[Settled], list[Lease]]:
    """The general way, for what is not `settled` yet."""
    memory = store.memories.of(ClaimMemory)
    unanswered = list(memory.unanswered)

    def work(session: Session) -> tuple[list[Settled], list[claims.Claimed]]:
        if check is not None and not check(session):
            return [], []
        _release_unanswered(session, memory, unanswered, now)
        ended = list(settled) or settlement.settle(session, verdicts, now)
        claimed = claims.claim(session, request, nonces, now) if request else []
        if request and request.worker.id in memory.agents:
            agent_claims.add(session, request.worker.id, [claim.token for claim in claimed])
        return ended, claimed

    ended, claimed = store.write(work)
    if unanswered:
        memory.unanswered = [nonce for nonce in memory.unanswered if nonce not in unanswered]
    return ended, [claims.lease(claim, request, now) for claim in claimed if request]


def _release_unanswered(
    session: Session, memory: ClaimMemory, unanswered: list[str], now: int
) -> None:
    """A claim may have been made although its answer was lost on the way (a broken connection,
    a disk that did not confirm): nobody knows its token, so release it."""
    for nonces in slices(unanswered):
        for task, attempt in claims.live_with_nonces(session, nonces, memory.workers):
            settlement.end_without_token(
                session, task, attempt, "release", "the answer to the claim got lost", now=now
            )


def _register_worker(store: Database, memory: ClaimMemory, worker: Worker, now: int) -> None:
    """A worker is written down once per process, before its first claim."""
    if worker.id not in memory.workers:
        agent = store.write_unsynced(claims.worker_seen, worker, now)
        remember_worker(store, worker.id, bool(agent))
