"""Claiming: the best ready tasks a caller can do, each to exactly one owner."""

from collections.abc import Sequence
from typing import NamedTuple

from hypervisor.domain.errors import NotFound
from hypervisor.domain.lane import Lane, may_claim
from hypervisor.domain.lease import ClaimRequest, Holder, Lease, Token, Worker
from hypervisor.store import keys, log, reading
from hypervisor.store.lanes import LaneBook
from hypervisor.store.reading import ATTEMPT, RANK, YOUNGEST_LANE
from hypervisor.store.session import Row, Session, marks, pad

LOOKS = 100
MOST_TRIED = 16

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
PICK = reading.TASK + "WHERE t.state = 'active' AND t.lane = ? ORDER BY t.rank LIMIT ?"
LEASE = """
UPDATE tasks SET state = 'in_progress', attempt = attempt + 1, deadline = ?, updated_at = ?,
    reason = NULL, unblock = NULL
WHERE id IN ({})
"""
# Only what is in progress has a deadline. Asked for its state, PostgreSQL may walk through the
# index of all that are in progress, and of all that have been since its last VACUUM.
HEARTBEAT = """
UPDATE tasks SET deadline = ?
WHERE id = ? AND deadline IS NOT NULL AND attempt = ?
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
ORDER BY t.deadline
"""

LIVE = """
SELECT t.id, t.attempt, a.worker FROM tasks t
JOIN attempts a ON a.task = t.id AND a.number = t.attempt
WHERE t.state = 'in_progress' AND a.nonce IN ({})
"""
LIVE_CLAIMS = """
SELECT t.id, t.attempt, a.nonce, t.deadline, a.worker FROM tasks t
JOIN attempts a ON a.task = t.id AND a.number = t.attempt
WHERE t.state = 'in_progress'
"""
ENDED = "SELECT outcome FROM attempts WHERE task = ? AND number = ? AND nonce = ?"
UNCHANGED = """
SELECT 1 FROM tasks WHERE id = ? AND attempt = ? AND deadline = ? AND state = 'in_progress'
"""


class Claimed(NamedTuple):
    """A task just taken, as it was the moment before."""

    token: Token
    lane: Lane
    row: Row


def claim(
    session: Session, book: LaneBook, request: ClaimRequest, nonces: list[str], now: int
) -> list[Claimed]:
    """Take up to `limit` tasks under a lease, best first, with these nonces in their tokens."""
    for _ in range(LOOKS):
        lanes = _lanes_for(session, book, request)
        picked = _pick(session, lanes, request.limit)
        # A lane that we have not met may hold better tasks, or the only ones left.
        fresh = picked and picked[0][YOUNGEST_LANE] == book.latest
        if not fresh and book.refresh(session):
            continue
        if picked:
            return _lease(session, book, picked, request, nonces, now)
        lanes = _ready_lanes(session, book, request)
        if not lanes:
            break
        if book.get(session, lanes[0]).keyed:
            session.lock("keys")
        # All that is ready is just being taken by others: wait for what they leave,
        # so that no answer is 'nothing' while there is something.
        if left := session.rows(PICK + session.wait_locked, (lanes[0], 1)):
            return _lease(session, book, left, request, nonces, now)
    return []


def lease(claimed: Claimed, request: ClaimRequest, now: int) -> Lease:
    """What the caller gets; made after the commit, when nobody waits for us any more."""
    until = now + request.lease
    task = reading.task(claimed.lane, claimed.row)._replace(
        state="in_progress", attempts=claimed.token.attempt, lease_until=until, updated_at=now,
        reason=None, unblock=None,
    )  # fmt: skip
    return Lease(str(claimed.token), until, task)


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


def live_with_nonces(
    session: Session, nonces: Sequence[str], workers: set[str]
) -> list[tuple[str, int]]:
    """Live claims of these workers that carry one of these nonces: (task, attempt)."""
    rows = session.rows(LIVE.format(marks(len(nonces))), pad(nonces))
    return [(task, attempt) for task, attempt, worker in rows if worker in workers]


def claims_of(session: Session, book: LaneBook, worker: str) -> list[Lease]:
    """The live claims of a worker, in the order of their tasks' ids."""
    rows = sorted(row for row in session.rows(LIVE_CLAIMS) if row[4] == worker)
    found = reading.tasks(session, book, [row[0] for row in rows]) if rows else []
    return [
        Lease(str(Token(*row[:3])), row[3], task) for row, task in zip(rows, found, strict=True)
    ]


def ended_claim(session: Session, token: Token) -> str | None:
    """The outcome of the attempt, None while it runs. NotFound: there is no such claim."""
    for row in session.rows(ENDED, (token.task, token.attempt, token.nonce)):
        return None if row[0] is None else str(row[0])
    raise NotFound(f"there is no claim {token.task}.{token.attempt} with that code.")


def unchanged(session: Session, holder: Holder) -> bool:
    """Whether the claim is still as it was seen: same attempt, not renewed since."""
    return bool(
        session.rows(UNCHANGED + session.for_update, (holder.task, holder.attempt, holder.until))
    )


def _lanes_for(session: Session, book: LaneBook, request: ClaimRequest) -> list[int]:
    """The lanes worth looking at. Few known ones are simply all tried; of many, those that
    have ready tasks are found first, which also tells whether keys come into play."""
    known = book.matching(request.wanted, request.worker.name)
    if len(known) <= MOST_TRIED and not any(book.get(session, lane).keyed for lane in known):
        return known
    lanes = _ready_lanes(session, book, request)
    if any(book.get(session, lane).keyed for lane in lanes):
        session.lock("keys")  # before any row is locked, as everywhere
    return lanes


def _pick(session: Session, lanes: list[int], limit: int) -> list[Row]:
    """The best of all lanes; a lane whose head comes too late needs no look."""
    best: list[Row] = []
    for head, lane in sorted(session.heads(lanes)) if len(lanes) > 1 else [(0, i) for i in lanes]:
        if len(best) == limit and head > best[-1][RANK]:
            break
        rows = session.rows(PICK + session.skip_locked, (lane, limit))
        best = sorted([*best, *rows], key=lambda row: row[RANK])[:limit] if best else rows
    return best


def _ready_lanes(session: Session, book: LaneBook, request: ClaimRequest) -> list[int]:
    """The lanes with ready tasks for this caller, best head first, as many as could matter."""
    rows = session.rows(READY_LANES)
    for lane, _ in rows:
        book.get(session, lane)  # meet them all first: with a new one may come a pause of others
    heads = [
        (rank, lane)
        for lane, rank in rows
        if may_claim(book.get(session, lane), request.wanted, request.worker.name)
    ]
    return [lane for _, lane in sorted(heads)[: request.limit]]


def _lease(
    session: Session,
    book: LaneBook,
    picked: list[Row],
    request: ClaimRequest,
    nonces: list[str],
    now: int,
) -> list[Claimed]:
    taken = _take_keys(session, book, picked, now)
    worker = request.worker.id
    task_ids = [row[0] for row, _ in taken]
    claimed = [
        Claimed(Token(row[0], row[ATTEMPT] + 1, nonce), lane, row)
        for (row, lane), nonce in zip(taken, nonces, strict=False)
    ]
    log.write(
        session,
        now,
        [
            log.Line("claim", c.token.task, c.lane.batch, c.token.attempt, "in_progress", worker)
            for c in claimed
        ],
    )
    session.together(
        [(LEASE.format(marks(len(taken))), [now + request.lease, now, *pad(task_ids)])],
        [("attempts", [(*c.token, worker, now) for c in claimed]), ("events", log.take(session))],
    )
    return claimed


def _take_keys(
    session: Session, book: LaneBook, picked: list[Row], now: int
) -> list[tuple[Row, Lane]]:
    """Leave out what another task of the same claim has just shut out."""
    taken: list[tuple[Row, Lane]] = []
    out: set[str] = set()
    for row in picked:
        if row[0] in out:
            continue
        lane = book.get(session, row[3])
        if lane.keyed:
            out |= keys.take(session, row[0], now)
        taken.append((row, lane))
    return taken
