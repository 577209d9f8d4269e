"""The lanes of a store, cached by every process: only a pause, or a person who lands a batch, ever
changes one.

Lanes are numbered in the order of their commits, and one that has changed gets a new number, so
that one query shows a process whether any lane is new or has changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hypervisor.queue.lane import ClaimFilter, Lane, may_claim
from hypervisor.store.database import Session

ADD = """
INSERT INTO lanes (id, batch, type, branch, priority, requires, assignee, keyed, paused, number)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, (SELECT coalesce(max(number), 0) + 1 FROM lanes))
ON CONFLICT (id) DO NOTHING
"""
NEWER = """
SELECT l.number, l.id, l.batch, l.type, l.branch, l.priority, l.requires, l.assignee, l.keyed,
    l.paused, b.merges
FROM lanes l LEFT JOIN batches b ON b.id = l.batch
WHERE l.number > ? ORDER BY l.number
"""
PAUSES = "SELECT scope, name FROM pauses"
MERGES = "SELECT merges, EXISTS (SELECT 1 FROM lanes WHERE batch = ?) FROM batches WHERE id = ?"
SET_MERGES = "UPDATE batches SET merges = ? WHERE id = ?"
LANES_OF = "SELECT id FROM lanes WHERE batch = ? ORDER BY number"
RENUMBER = "UPDATE lanes SET number = (SELECT max(number) + 1 FROM lanes) WHERE id = ?"
SET_PAUSED = """
UPDATE lanes SET paused = ?, number = (SELECT max(number) + 1 FROM lanes) WHERE id = ?
"""


class LaneBook:
    """Finds lanes by id or filter, reading the table only for unknown ones."""

    def __init__(self) -> None:
        self.rolled_back()

    def rolled_back(self) -> None:
        """Forget all lanes: some may have been read in the failed transaction only."""
        self.latest = 0
        self._known: dict[int, Lane] = {}
        self._matching: dict[tuple[ClaimFilter, str], list[int]] = {}
        self._plain: dict[tuple[ClaimFilter, str], list[int]] = {}
        self._sets: dict[tuple[ClaimFilter, str], frozenset[int]] = {}
        self._all: dict[tuple[ClaimFilter, str], bool] = {}

    def get(self, session: Session, lane_id: int) -> Lane:
        if lane_id not in self._known:
            self.refresh(session)
        return self._known[lane_id]

    def refresh(self, session: Session) -> bool:
        """Read the lanes that are new. Returns whether there were any."""
        rows = session.rows(NEWER, (self.latest,))
        for _, lane_id, *fields in rows:
            self._known[lane_id] = _lane(fields)
        if rows:
            self._matching.clear()
            self._plain.clear()
            self._sets.clear()
            self._all.clear()
            self.latest = rows[-1][0]  # last, for threads that are just asking
        return bool(rows)

    def knows_all(self, lanes: Iterable[int]) -> bool:
        return all(lane in self._known for lane in lanes)

    def matching(self, wanted: ClaimFilter, caller: str) -> list[int]:
        """The known lanes that this caller may claim from."""
        lanes = self._matching.get((wanted, caller))
        if lanes is None:
            lanes = [
                lane_id for lane_id, lane in self._known.items() if may_claim(lane, wanted, caller)
            ]
            self._matching[wanted, caller] = lanes
        return lanes

    def matching_set(self, wanted: ClaimFilter, caller: str) -> frozenset[int]:
        """The same as a set: quick to ask for each of a thousand lanes."""
        lanes = self._sets.get((wanted, caller))
        if lanes is None:
            lanes = self._sets[wanted, caller] = frozenset(self.matching(wanted, caller))
        return lanes

    def all_match(self, wanted: ClaimFilter, caller: str) -> bool:
        """Whether this caller may claim from every known lane, and none has keys."""
        known = self._all.get((wanted, caller))
        if known is None:
            lanes = list(self._known.values())
            known = bool(lanes) and all(
                may_claim(lane, wanted, caller) and not lane.keyed for lane in lanes
            )
            self._all[wanted, caller] = known
        return known

    def find(self, lane_id: int) -> Lane | None:
        """A lane, if it is known."""
        return self._known.get(lane_id)

    def plain(self, wanted: ClaimFilter, caller: str) -> list[int]:
        """Those lanes, if none of them has keys and none merges; otherwise none."""
        plain = self._plain.get((wanted, caller))
        if plain is None:
            lanes = self.matching(wanted, caller)
            known = [self._known.get(lane) for lane in lanes]
            if None in known:
                return []  # another thread has just cleared them
            plain = [] if any(lane and (lane.keyed or lane.merges) for lane in known) else lanes
            self._plain[wanted, caller] = plain
        return plain

    def ensure(self, session: Session, lanes: Iterable[Lane]) -> None:
        """Make sure the lanes exist. They are cached when they are next read, so that a later
        insert need not wait for other inserts."""
        missing = [lane for lane in lanes if lane.id not in self._known]
        if missing and self.refresh(session):
            missing = [lane for lane in missing if lane.id not in self._known]
        if missing:
            session.lock("lanes")  # numbers must become visible in their order
            pauses = _pauses(session)
            session.run_many(ADD, [_row(lane, _is_paused(lane, pauses)) for lane in missing])

    def follow_pauses(self, session: Session) -> None:
        """Mark the lanes as paused or not, according to the pauses."""
        session.lock("lanes")
        self.refresh(session)
        pauses = _pauses(session)
        session.run_many(
            SET_PAUSED,
            [
                (int(not lane.paused), lane_id)
                for lane_id, lane in self._known.items()
                if lane.paused != _is_paused(lane, pauses)
            ],
        )


def lane_book(session: Session) -> LaneBook:
    """The lanes that this process knows."""
    return session.caches.of(LaneBook)


def set_merges(session: Session, batch: str, merges: bool) -> bool:
    """Decide whether what is completed in a batch is merged. False: too late, it has had tasks."""
    [(before, _)] = session.rows(MERGES, (batch, batch))
    if bool(before) == merges:
        return True
    session.lock("lanes")  # none may be added at the same time
    if session.rows(MERGES, (batch, batch))[0][1]:
        return False
    session.run(SET_MERGES, (int(merges), batch))
    return True


def start_merging(session: Session, batch: str) -> None:
    """From now on what is completed in a batch is merged, though it has had tasks."""
    session.lock("lanes")
    if session.rows(MERGES, (batch, batch))[0][0]:
        return
    session.run(SET_MERGES, (1, batch))
    session.run_many(RENUMBER, [(row[0],) for row in session.rows(LANES_OF, (batch,))])


def get_lane(session: Session, lane_id: int) -> Lane:
    lane: Lane = session.caches[LaneBook].get(session, lane_id)  # hot: one call less than `of`
    return lane


def _lane(fields: Sequence[Any]) -> Lane:
    batch, kind, branch, priority, requires, assignee, keyed, *flags = fields
    needs = tuple(requires.split(" ")) if requires else ()
    paused, merges = map(bool, flags)
    return Lane(batch, kind, branch, priority, needs, assignee, bool(keyed), paused, merges)


def _row(lane: Lane, paused: bool) -> tuple[Any, ...]:
    requires = " ".join(lane.requires)
    return (lane.id, *lane[:4], requires, lane.assignee, int(lane.keyed), int(paused))


def _pauses(session: Session) -> set[tuple[str, str]]:
    return {(scope, name) for scope, name in session.rows(PAUSES)}


def _is_paused(lane: Lane, pauses: set[tuple[str, str]]) -> bool:
    return not pauses.isdisjoint({("all", ""), ("batch", lane.batch), ("type", lane.type)})
