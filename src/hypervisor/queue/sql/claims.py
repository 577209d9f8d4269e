"""Claiming: the best ready tasks a caller can do, each to exactly one owner."""

from collections.abc import Sequence

from hypervisor.core.errors import LeaseLost, NotFound
from hypervisor.core.records import NamedTuple
from hypervisor.queue.lane import Lane
from hypervisor.queue.lease import ClaimRequest, Holder, Lease, Token, Worker
from hypervisor.queue.sql import event_log, exclusive_keys, picking, queries
from hypervisor.queue.sql.lanes import get_lane, lane_book
from hypervisor.queue.sql.queries import ATTEMPT, YOUNGEST_LANE
from hypervisor.store.database import Row, Session, marks, pad, slices

MAX_TRIES = 100

ONE = queries.TASK + "WHERE t.state = 'active' AND t.id = ?"
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
SELECT t.id, t.attempt, t.deadline, w.batch, coalesce(h.state, ''),
    w.id, w.name, w.host, w.boot, w.pid, w.pid_start
FROM tasks t
JOIN attempts a ON a.task = t.id AND a.number = t.attempt
JOIN workers w ON w.id = a.worker
LEFT JOIN hosts h ON h.id = w.leased_by
WHERE t.state = 'in_progress'
    AND ((t.deadline < ? AND h.id IS NULL) OR h.state = 'gone' OR (w.boot = ? AND w.pid > 0))
ORDER BY t.deadline
"""
HOST_LOST = "was lost: it did not renew its lease"  # how such a reason ends
MAX_LOOKED_AT = 100  # attempts
ENDED_BEFORE = """
SELECT a.outcome, a.reason, w.leased_by, w.host FROM attempts a JOIN workers w ON w.id = a.worker
WHERE a.task = ? AND a.number <= ? ORDER BY a.number DESC LIMIT ?
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
IS_LIVE = """
SELECT a.nonce FROM tasks t JOIN attempts a ON a.task = t.id AND a.number = t.attempt
WHERE t.id = ? AND t.attempt = ? AND t.deadline IS NOT NULL
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
        picked = picking.pick(session, request)
        # A lane that we do not know yet may have better tasks, or the only ones left.
        fresh = picked and picked[0][YOUNGEST_LANE] == book.latest
        if not fresh and book.refresh(session):
            continue
        if picked:
            return _lease(session, picked, request, nonces, now)
        lanes = picking.ready_lanes(session, request)
        if not lanes:
            break
        if get_lane(session, lanes[0]).keyed:
            session.lock("keys")
        # Others are just taking all ready tasks: wait for what they leave, so that
        # the answer is not 'nothing' while there is something.
        if rows := session.rows(picking.PICK + session.wait_locked, (lanes[0], 1)):
            return _lease(session, rows, request, nonces, now)
    return []


def claim_one(
    session: Session, task: str, request: ClaimRequest, nonce: str, now: int
) -> Claimed | None:
    """Take this task; None if it is not ready."""
    if picked := session.rows(ONE + session.wait_locked, (task,)):
        return next(iter(_lease(session, picked, request, [nonce], now)), None)
    return None


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


def is_live(session: Session, token: Token) -> bool:
    return any(token.matches(nonce) for (nonce,) in session.rows(IS_LIVE, token[:2]))


def worker_seen(session: Session, worker: Worker, now: int) -> str:
    """Store a worker. Returns its agent if that claims tasks itself, otherwise ""."""
    return str(session.rows(SEEN, (*worker, now, now))[0][0])


def holders(session: Session, boot: str, now: int) -> list[Holder]:
    """Claims that may be stale: lapsed ones, and those of processes on this host."""
    return [
        Holder(task, attempt, until, Worker(*worker), batch is not None, host)
        for task, attempt, until, batch, host, *worker in session.rows(HOLDERS, (now, boot))
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


def hosts_lost_with(session: Session, task: str, attempt: int) -> dict[str, str]:
    """Hosts that were lost while they had this task, in a row up to this attempt: names by id. A
    host that is cut off several times counts once, one that was started again twice."""
    lost: dict[str, str] = {}
    for outcome, reason, host, name in session.rows(ENDED_BEFORE, (task, attempt, MAX_LOOKED_AT)):
        if outcome is not None and (outcome != "released" or not str(reason).endswith(HOST_LOST)):
            break
        lost[host] = name
    return lost
