"""Claiming: the best ready tasks a caller can do, each to exactly one owner."""

from __future__ import annotations

from collections.abc import Sequence

from hypervisor.domain import ids
from hypervisor.domain.lane import may_claim
from hypervisor.domain.lease import ClaimRequest, Holder, Lease, Token, Worker
from hypervisor.store import keys, log, reading
from hypervisor.store.lanes import LaneBook
from hypervisor.store.session import Row, Session, marks, pad

LOOKS = 100

# Hops from lane to lane through the index of ready tasks: its cost is the
# number of lanes that have any, not the number of tasks.
READY_LANES = """
WITH RECURSIVE heads(lane) AS (
    SELECT min(lane) FROM tasks WHERE state = 'active'
    UNION ALL
    SELECT (SELECT min(lane) FROM tasks WHERE state = 'active' AND lane > heads.lane)
    FROM heads WHERE heads.lane IS NOT NULL)
SELECT lane, (SELECT min(rank) FROM tasks WHERE state = 'active' AND tasks.lane = heads.lane)
FROM heads WHERE lane IS NOT NULL
"""
LEASE = """
UPDATE tasks SET state = 'in_progress', attempt = attempt + 1, deadline = ?, updated_at = ?,
    reason = NULL, unblock = NULL
WHERE id IN ({})
"""
HEARTBEAT = """
UPDATE tasks SET deadline = ?
WHERE id = ? AND state = 'in_progress' AND attempt = ?
    AND EXISTS (SELECT 1 FROM attempts a WHERE a.task = id AND a.number = ? AND a.nonce = ?)
RETURNING id
"""
SEEN = """
INSERT INTO workers (id, name, host, boot, pid, pid_start, started_at, seen_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at
"""
HOLDERS = """
SELECT t.id, t.attempt, t.deadline, w.id, w.name, w.host, w.boot, w.pid, w.pid_start
FROM tasks t
JOIN attempts a ON a.task = t.id AND a.number = t.attempt
JOIN workers w ON w.id = a.worker
WHERE t.state = 'in_progress' AND (t.deadline < ? OR (w.boot = ? AND w.pid > 0))
ORDER BY t.deadline LIMIT 1000
"""

UNCHANGED = """
SELECT 1 FROM tasks WHERE id = ? AND attempt = ? AND deadline = ? AND state = 'in_progress'
"""


def claim(session: Session, book: LaneBook, request: ClaimRequest, now: int) -> list[Lease]:
    """Take up to `limit` tasks under a lease, best first."""
    for _ in range(LOOKS):
        lanes = _lanes_for(session, book, request)
        if not lanes:
            break
        # Rivals may have emptied these lanes since we looked: look again, so that
        # no answer is 'nothing' while other tasks or lanes are ready.
        if picked := session.pick(lanes, request.limit):
            taken = _take_keys(session, book, picked, now)
            return _lease(session, book, taken, request, now)
    return []


def heartbeat(session: Session, tokens: Sequence[Token], until: int) -> set[Token]:
    """Extend these leases. Returns the tokens that still hold."""
    return {
        token
        for token in tokens
        if session.rows(HEARTBEAT, (until, token.task, token.attempt, token.attempt, token.nonce))
    }


def worker_seen(session: Session, worker: Worker, now: int) -> None:
    session.run(SEEN, (*worker, now, now))


def holders(session: Session, boot: str, now: int) -> list[Holder]:
    """Claims that may be stale: lapsed ones, and those of processes on this host."""
    return [
        Holder(row[0], row[1], row[2], Worker(*row[3:]))
        for row in session.rows(HOLDERS, (now, boot))
    ]


def unchanged(session: Session, holder: Holder) -> bool:
    """Whether the claim is still as it was seen: same attempt, not renewed since."""
    return bool(
        session.rows(UNCHANGED + session.for_update, (holder.task, holder.attempt, holder.until))
    )


def _lanes_for(session: Session, book: LaneBook, request: ClaimRequest) -> list[int]:
    """The lanes worth looking at, best head first."""
    heads = [
        (rank, lane_id)
        for lane_id, rank in session.rows(READY_LANES)
        if may_claim(book.get(session, lane_id), request.wanted, request.worker.name)
    ]
    heads.sort()
    lanes = [lane_id for _, lane_id in heads[: request.limit]]
    if any(book.get(session, lane_id).keyed for lane_id in lanes):
        session.lock("keys")  # before any row is locked, as everywhere
    return lanes


def _take_keys(session: Session, book: LaneBook, picked: list[Row], now: int) -> list[Row]:
    """Drop what another task of the same claim has just shut out."""
    taken: list[Row] = []
    out: set[str] = set()
    for row in picked:
        if row[0] in out:
            continue
        if book.get(session, row[1]).keyed:
            out |= keys.take(session, row[0], now)
        taken.append(row)
    return taken


def _lease(
    session: Session, book: LaneBook, taken: list[Row], request: ClaimRequest, now: int
) -> list[Lease]:
    until = now + request.lease
    worker = request.worker.id
    task_ids = [row[0] for row in taken]
    session.run(LEASE.format(marks(len(taken))), [until, now, *pad(task_ids)])
    tokens = [Token(task, last + 1, ids.short_hash(ids.entropy())) for task, _, _, last in taken]
    session.insert("attempts", [(*token, worker, now) for token in tokens])
    batches = [book.get(session, row[1]).batch for row in taken]
    log.write(
        session,
        now,
        [
            log.Line("claim", token.task, batch, token.attempt, "in_progress", worker)
            for token, batch in zip(tokens, batches, strict=True)
        ],
    )
    tasks = {task.id: task for task in reading.tasks(session, book, task_ids)}
    return [Lease(str(token), until, tasks[token.task]) for token in tokens]
