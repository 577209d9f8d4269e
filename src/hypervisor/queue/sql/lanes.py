"""The lanes of a store, remembered by every process: only a pause ever changes one.

Lanes are numbered in the order of their commits, and one that is paused or
resumed gets a new number, so that a process can tell with one look whether
there are any that it has not met as they are.
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
SELECT number, id, batch, type, branch, priority, requires, assignee, keyed, paused FROM lanes
WHERE number > ? ORDER BY number
"""
PAUSES = "SELECT scope, name FROM pauses"
SET_PAUSED = """
UPDATE lanes SET paused = ?, number = (SELECT max(number) + 1 FROM lanes) WHERE id = ?
"""


class LaneBook:
    """Finds lanes by id or filter, reading the table only for those it has not met."""

    def __init__(self) -> None:
        self.rolled_back()

    def rolled_back(self) -> None:
        """Start over: the transaction may have shown us lanes that no longer exist."""
        self.latest = 0
        self._known: dict[int, Lane] = {}
        self._matching: dict[tuple[ClaimFilter, str], list[int]] = {}
        self._unkeyed: dict[tuple[ClaimFilter, str], list[int]] = {}

    def get(self, session: Session, lane_id: int) -> Lane:
        if lane_id not in self._known:
            self.refresh(session)
        return self._known[lane_id]

    def refresh(self, session: Session) -> bool:
        """Read the lanes that are new. Says whether there were any."""
        rows = session.rows(NEWER, (self.latest,))
        for number, lane_id, *fields in rows:
            self._known[lane_id] = _lane(fields)
            self.latest = number
        if rows:
            self._matching.clear()
            self._unkeyed.clear()
        return bool(rows)

    def matching(self, wanted: ClaimFilter, caller: str) -> list[int]:
        """The lanes we have met that this caller may claim from."""
        found = self._matching.get((wanted, caller))
        if found is None:
            found = [i for i, lane in self._known.items() if may_claim(lane, wanted, caller)]
            self._matching[wanted, caller] = found
        return found

    def find(self, lane_id: int) -> Lane | None:
        """A lane that we have met."""
        return self._known.get(lane_id)

    def unkeyed(self, wanted: ClaimFilter, caller: str) -> list[int]:
        """Those lanes, if none of them has keys; otherwise none."""
        found = self._unkeyed.get((wanted, caller))
        if found is None:
            lanes = self.matching(wanted, caller)
            known = [self._known.get(lane) for lane in lanes]
            if None in known:
                return []  # another thread has just made us forget them
            found = [] if any(lane and lane.keyed for lane in known) else lanes
            self._unkeyed[wanted, caller] = found
        return found

    def ensure(self, session: Session, lanes: Iterable[Lane]) -> None:
        """Make sure the lanes exist. They are remembered only once they are read back: whoever
        adds the next tasks finds them there, and need not wait for others who add."""
        missing = [lane for lane in lanes if lane.id not in self._known]
        if missing and self.refresh(session):
            missing = [lane for lane in missing if lane.id not in self._known]
        if missing:
            session.lock("lanes")  # numbers must become visible in their order
            pauses = _pauses(session)
            session.run_many(
                ADD,
                [
                    (
                        x.id,
                        *x[:4],
                        " ".join(x.requires),
                        x.assignee,
                        int(x.keyed),
                        int(_is_paused(x, pauses)),
                    )
                    for x in missing
                ],
            )

    def follow_pauses(self, session: Session) -> None:
        """Mark the lanes as the pauses now say."""
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
    """The lanes that this process has met."""
    return session.memories.of(LaneBook)


def get_lane(session: Session, lane_id: int) -> Lane:
    return session.memories.of(LaneBook).get(session, lane_id)


def _lane(fields: Sequence[Any]) -> Lane:
    batch, kind, branch, priority, requires, assignee, keyed, paused = fields
    needs = tuple(requires.split(" ")) if requires else ()
    return Lane(batch, kind, branch, priority, needs, assignee, bool(keyed), bool(paused))


def _pauses(session: Session) -> set[tuple[str, str]]:
    return {(scope, name) for scope, name in session.rows(PAUSES)}


def _is_paused(lane: Lane, pauses: set[tuple[str, str]]) -> bool:
    return not pauses.isdisjoint({("all", ""), ("batch", lane.batch), ("type", lane.type)})
