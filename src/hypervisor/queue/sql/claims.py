"""Claiming: the best ready tasks a caller can do, each to exactly one owner."""

from collections.abc import Sequence
from typing import NamedTuple

from hypervisor.core.errors import LeaseLost, NotFound
from hypervisor.queue.lane import Lane, may_claim
from hypervisor.queue.lease import ClaimRequest, Holder, Lease, Token, Worker
from hypervisor.queue.sql import event_log, exclusive_keys, queries
from hypervisor.queue.sql.lanes import get_lane, lane_book
from hypervisor.queue.sql.queries import ATTEMPT, RANK, YOUNGEST_LANE
from hypervisor.store.database import Row, Session, marks, pad, slices

MAX_TRIES = 100
MAX_TRIED = 16

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
PICK = queries.TASK + "WHERE t.state = 'active' AND t.lane = ? ORDER BY t.rank LIMIT ?"
LEASE = """
UPDATE tasks SET state = 'in_progress', attempt = attempt + 1, deadline = ?, updated_at = ?,
    reason = NULL, unblock = NULL
WHERE id IN ({})
"""
# Only a task in progress has a deadline. With a condition on the state, PostgreSQL may scan the
# index of all tasks that are in progress, or have been since the last VACUUM.
HEARTBEAT = """
UPDATE tasks SET deadline = ? WHERE id = ? AND deadline IS NOT NULL AND attempt = ? RETURNING id
"""
NONCES = "SELECT task, number, nonce FROM attempts WHERE task IN ({})"
SEEN = """
INSERT INTO workers (id, name, host, boot, pid, pid_start, started_at, seen_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at RETURNING agent
"""
HOLDERS = """
SELECT t.id, t.attempt, t.deadline, w.batch, w.id, w.name, w.host, w.boot, w.pid, w.pid_start
FROM tasks t
JOIN attempts a ON a.task = t.id AND a.number = t.attempt
JOIN workers w ON w.id = a.worker
WHERE t.state = 'in_progress' AND (t.deadline < ? OR (w.boot = ? AND w.pid > 0))
ORDER BY t.deadline
"""
HOLDS_ANY = """
SELECT 1 FROM tasks t
JOIN attempts a ON a.task = t.id AND a.number = t.attempt
WHERE t.state = 'in_progress' AND a.worker = ? LIMIT 1
"""
LIVE = """
SELECT t.id, t.attempt, a.worker FROM tasks t
JOIN attempts a ON a.task = t.id AND a.number = t.attempt
WHERE t.state = 'in_progress' AND a.nonce IN ({})
"""
CLAIM = """
SELECT a.nonce, a.outcome, a.worker, t.batch, t.attempt, t.deadline
FROM attempts a JOIN tasks t ON t.id = a.task WHERE a.task = ? AND a.number = ?
"""
ENDED = "SELECT outcome, nonce FROM attempts WHERE task = ? AND number = ?"
BATCH_SPEC = """
SELECT a.nonce, b.spec FROM tasks t
JOIN attempts a ON a.task = t.id AND a.number = t.attempt
JOIN batches b ON b.id = t.batch
WHERE t.id = ? AND t.attempt = ? AND t.deadline IS NOT NULL
"""
SPEC = "SELECT spec FROM batches WHERE id = ?"
UNCHANGED = """
SELECT 1 FROM tasks WHERE id = ? AND attempt = ? AND deadline = ? AND state = 'in_progress'
"""


class Claimed(NamedTuple):
    """A claimed task, with its row from before the claim."""

    token: Token
    lane: Lane
    row: Row


def claim(session: Session, request: ClaimRequest, nonces: list[str], now: int) -> list[Claimed]:
    """Take up to `limit` tasks under a lease, best first, with these nonces in their tokens."""
    book = lane_book(session)
    for _ in range(MAX_TRIES):
        lanes = _lanes_for(session, request)
        picked = _pick(session, lanes, request.limit)
        # A lane that we do not know yet may have better tasks, or the only ones left.
        fresh = picked and picked[0][YOUNGEST_LANE] == book.latest
        if not fresh and book.refresh(session):
            continue
        if picked:
            return _lease(session, picked, request, nonces, now)
        lanes = _ready_lanes(session, request)
        if not lanes:
            break
        if get_lane(session, lanes[0]).keyed:
            session.lock("keys")
        # Others are just taking all ready tasks: wait for what they leave, so that
        # the answer is not 'nothing' while there is something.
        if rows := session.rows(PICK + session.wait_locked, (lanes[0], 1)):
            return _lease(session, rows, request, nonces, now)
    return []


def lease(claimed: Claimed, request: ClaimRequest, now: int) -> Lease:
    """The lease for the caller; made after the commit, when the lock is released."""
    until = now + request.lease
    task = queries.make_task(claimed.lane, claimed.row)._replace(
        state="in_progress",
        attempts=claimed.token.attempt,
        lease_until=until,
        updated_at=now,
        reason=None,
        unblock=None,
    )
    return Lease(str(claimed.token), until, task)


def heartbeat(session: Session, tokens: Sequence[Token], until: int) -> set[Token]:
    """Extend these leases. Returns the tokens that are still valid."""
    nonces = {
        (task, number): nonce
        for part in slices([token.task for token in tokens])
        for task, number, nonce in session.rows(NONCES.format(marks(len(part))), pad(part))
    }
    return {
        token
        for token in tokens
        if token.matches(nonces.get(token[:2], "")) and session.rows(HEARTBEAT, (until, *token[:2]))
    }


def worker_seen(session: Session, worker: Worker, now: int) -> str:
    """Store a worker. Returns its agent if that claims tasks itself, otherwise ""."""
    return str(session.rows(SEEN, (*worker, now, now))[0][0])


def holders(session: Session, boot: str, now: int) -> list[Holder]:
    """Claims that may be stale: lapsed ones, and those of processes on this host."""
    return [
        Holder(task, attempt, until, Worker(*worker), batch is not None)
        for task, attempt, until, batch, *worker in session.rows(HOLDERS, (now, boot))
    ]


def holds_any(session: Session, worker: str) -> bool:
    """Whether a worker holds any claim."""
    return bool(session.rows(HOLDS_ANY, (worker,)))


def live_with_nonces(
    session: Session, nonces: Sequence[str], workers: set[str]
) -> list[tuple[str, int]]:
    """Live claims of these workers that carry one of these nonces: (task, attempt)."""
    rows = session.rows(LIVE.format(marks(len(nonces))), pad(nonces))
    return [(task, attempt) for task, attempt, worker in rows if worker in workers]


def lock_claim(session: Session, token: Token) -> tuple[str, str]:
    """Lock the task of a live claim. Returns its worker and batch. LeaseLost: it has ended.

    Joined rows may have been read before we got the lock; the task is up to date."""
    rows = session.rows(CLAIM + session.wait_locked, token[:2])
    if not rows or not token.matches(rows[0][0]):
        raise LeaseLost(str(token), "no such claim")
    _, outcome, worker, batch, attempt, deadline = rows[0]
    if outcome is None and attempt == token.attempt and deadline is not None:
        return worker, batch
    raise LeaseLost(str(token), f"it was {ended_claim(session, token)}")


def batch_spec(session: Session, token: Token) -> str:
    """The run spec of a live claim's batch as JSON; "" if there is none, or the claim has ended."""
    for nonce, spec in session.rows(BATCH_SPEC, token[:2]):
        if token.matches(nonce):
            return str(spec or "")
    return ""


def spec_of_batch(session: Session, batch: str) -> str:
    """The run spec of a batch as JSON; "" if there is none."""
    return next((str(spec or "") for (spec,) in session.rows(SPEC, (batch,))), "")


def ended_claim(session: Session, token: Token) -> str | None:
    """The outcome of the attempt, None while it runs. NotFound: no such claim."""
    for outcome, nonce in session.rows(ENDED, token[:2]):
        if token.matches(nonce):
            return None if outcome is None else str(outcome)
    raise NotFound(f"no such claim: {token.task}.{token.attempt} has another code")


def unchanged(session: Session, holder: Holder) -> bool:
    """Whether the claim is still the same: same attempt, not renewed since."""
    return bool(
        session.rows(UNCHANGED + session.for_update, (holder.task, holder.attempt, holder.until))
    )


def _lanes_for(session: Session, request: ClaimRequest) -> list[int]:
    """The lanes to try: all known ones if they are few; otherwise those with ready tasks, which
    also shows whether keys matter."""
    book = lane_book(session)
    known = book.matching(request.wanted, request.worker.name)
    if len(known) <= MAX_TRIED and not any(book.get(session, lane).keyed for lane in known):
        return known
    lanes = _ready_lanes(session, request)
    if any(get_lane(session, lane).keyed for lane in lanes):
        session.lock("keys")  # before any row is locked, as everywhere
    return lanes


def _pick(session: Session, lanes: list[int], limit: int) -> list[Row]:
    """The best tasks of all lanes, skipping lanes whose head comes too late."""
    best: list[Row] = []
    for head, lane in sorted(session.heads(lanes)) if len(lanes) > 1 else [(0, i) for i in lanes]:
        if len(best) == limit and head > best[-1][RANK]:
            break
        rows = session.rows(PICK + session.skip_locked, (lane, limit))
        best = sorted([*best, *rows], key=lambda row: row[RANK])[:limit] if best else rows
    return best


def _ready_lanes(session: Session, request: ClaimRequest) -> list[int]:
    """The lanes with ready tasks for this caller, best head first, as many as could matter."""
    rows = session.rows(READY_LANES)
    for lane, _ in rows:
        get_lane(session, lane)  # load all first: a new lane may come with a pause of others
    heads = [
        (rank, lane)
        for lane, rank in rows
        if may_claim(get_lane(session, lane), request.wanted, request.worker.name)
    ]
    return [lane for _, lane in sorted(heads)[: request.limit]]


def _lease(
    session: Session,
    picked: list[Row],
    request: ClaimRequest,
    nonces: list[str],
    now: int,
) -> list[Claimed]:
    taken = _take_keys(session, picked, now)
    worker = request.worker.id
    task_ids = [row[0] for row, _ in taken]
    claimed = [
        Claimed(Token(row[0], row[ATTEMPT] + 1, nonce), lane, row)
        for (row, lane), nonce in zip(taken, nonces, strict=False)
    ]
    event_log.write(
        session,
        now,
        [
            event_log.Line(
                "claim", c.token.task, c.lane.batch, c.token.attempt, "in_progress", worker
            )
            for c in claimed
        ],
    )
    session.together(
        [(LEASE.format(marks(len(taken))), [now + request.lease, now, *pad(task_ids)])],
        [
            ("attempts", [(*c.token, worker, now) for c in claimed]),
            ("events", event_log.take(session)),
        ],
    )
    return claimed


def _take_keys(session: Session, picked: list[Row], now: int) -> list[tuple[Row, Lane]]:
    """Leave out tasks whose keys another task of the same claim has just taken."""
    taken: list[tuple[Row, Lane]] = []
    displaced: set[str] = set()
    for row in picked:
        if row[0] in displaced:
            continue
        lane = get_lane(session, row[3])
        if lane.keyed:
            displaced |= exclusive_keys.take(session, row[0], now)
        taken.append((row, lane))
    return taken
