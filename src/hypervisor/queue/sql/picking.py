"""Finding the best ready tasks that a caller may claim.

All ready tasks are in one index by rank. A caller who may claim from every lane takes the first
ones; any other skips those of lanes that it may not claim from, up to a limit. Past that, or if it
wants only a few lanes, it compares the heads of the lanes, which are in a second index.
"""

from __future__ import annotations

from heapq import nsmallest

from hypervisor.queue.lease import ClaimRequest
from hypervisor.queue.sql import queries
from hypervisor.queue.sql.lanes import LaneBook, get_lane, lane_book
from hypervisor.queue.sql.queries import RANK
from hypervisor.store.database import Row, Session, marks, pad

MAX_TRIED = 16
MAX_SKIPPED = 32

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
PICK_ANY = queries.TASK + "WHERE t.state = 'active' AND t.rank + 0 >= 0 ORDER BY t.rank + 0 LIMIT ?"
FIRST = (
    "SELECT id, lane FROM tasks WHERE state = 'active' AND rank + 0 >= 0 ORDER BY rank + 0 LIMIT ?"
)
# By their ids: PostgreSQL must not choose the index of all ready tasks.
PICK_AMONG = (
    queries.TASK + "WHERE t.id IN ({}) AND t.state || '' = 'active' ORDER BY t.rank LIMIT ?"
)


def pick(session: Session, request: ClaimRequest) -> list[Row]:
    """The best ready tasks for this caller, as far as its lanes are known. They are locked."""
    book = lane_book(session)
    known = book.matching(request.wanted, request.worker.name)
    if len(known) > 1 and book.all_match(request.wanted, request.worker.name):
        return session.rows(PICK_ANY + session.skip_locked, (request.limit,))
    if len(known) <= MAX_TRIED and not any(book.get(session, lane).keyed for lane in known):
        return _pick_from(session, known, request.limit)
    rows = _pick_among_first(session, book, request)
    return _pick_from_ready(session, request) if rows is None else rows


def ready_lanes(session: Session, request: ClaimRequest) -> list[int]:
    """The lanes with ready tasks for this caller, best head first, as many as could matter."""
    rows = session.rows(READY_LANES)
    book = lane_book(session)
    if not book.knows_all(lane for lane, _ in rows):
        book.refresh(session)  # all at once: a new lane may come with a pause of others
    wanted = book.matching_set(request.wanted, request.worker.name)
    heads = [(rank, lane) for lane, rank in rows if lane in wanted]
    return [lane for _, lane in nsmallest(request.limit, heads)]


def _pick_among_first(session: Session, book: LaneBook, request: ClaimRequest) -> list[Row] | None:
    """The first tasks of its lanes; None if too many others come before them."""
    limit = request.limit
    first = session.rows(FIRST, (limit + MAX_SKIPPED,))
    if not book.knows_all(lane for _, lane in first):
        book.refresh(session)
    wanted = book.matching_set(request.wanted, request.worker.name)
    ours = [(task, lane) for task, lane in first if lane in wanted]
    if len(ours) < limit and len(first) == limit + MAX_SKIPPED:
        return None
    if not session.skip_locked:
        ours = ours[:limit]  # nobody else can be claiming them
    if any(get_lane(session, lane).keyed for _, lane in ours):
        session.lock("keys")  # before any row is locked, as everywhere
    tasks = [task for task, _ in ours]
    statement = PICK_AMONG.format(marks(len(tasks))) + session.skip_locked
    return session.rows(statement, [*pad(tasks), limit]) if tasks else []


def _pick_from_ready(session: Session, request: ClaimRequest) -> list[Row]:
    lanes = ready_lanes(session, request)
    if any(get_lane(session, lane).keyed for lane in lanes):
        session.lock("keys")
    return _pick_from(session, lanes, request.limit)


def _pick_from(session: Session, lanes: list[int], limit: int) -> list[Row]:
    """The best tasks of all lanes, skipping lanes whose head comes too late."""
    best: list[Row] = []
    for head, lane in sorted(session.heads(lanes)) if len(lanes) > 1 else [(0, i) for i in lanes]:
        if len(best) == limit and head > best[-1][RANK]:
            break
        rows = session.rows(PICK + session.skip_locked, (lane, limit))
        best = sorted([*best, *rows], key=lambda row: row[RANK])[:limit] if best else rows
    return best
