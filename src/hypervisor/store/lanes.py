"""The lanes of a store, remembered by every process: a lane never changes once it exists.

Lanes are numbered in the order of their commits, so that a process can tell
with one look whether there are any that it has not met.
"""

from __future__ import annotations

from collections.abc import Iterable

from hypervisor.domain.lane import ClaimFilter, Lane, may_claim
from hypervisor.store.session import Session

ADD = """
INSERT INTO lanes (id, batch, type, branch, priority, requires, assignee, keyed, number)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, (SELECT coalesce(max(number), 0) + 1 FROM lanes))
ON CONFLICT (id) DO NOTHING
"""
NEWER = """
SELECT number, id, batch, type, branch, priority, requires, assignee, keyed FROM lanes
WHERE number > ? ORDER BY number
"""


class LaneBook:
    """Finds lanes by id or filter, reading the table only for those it has not met."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start over: a transaction was rolled back that may have shown us its own lanes."""
        self.latest = 0
        self._known: dict[int, Lane] = {}
        self._matching: dict[tuple[ClaimFilter, str], list[int]] = {}

    def get(self, session: Session, lane_id: int) -> Lane:
        if lane_id not in self._known:
            self.refresh(session)
        return self._known[lane_id]

    def refresh(self, session: Session) -> bool:
        """Read the lanes that are new. Says whether there were any."""
        rows = session.rows(NEWER, (self.latest,))
        for number, lane_id, batch, kind, branch, priority, requires, assignee, keyed in rows:
            needs = tuple(requires.split(" ")) if requires else ()
            lane = Lane(batch, kind, branch, priority, needs, assignee, bool(keyed))
            self._known[lane_id] = lane
            self.latest = number
        if rows:
            self._matching.clear()
        return bool(rows)

    def matching(self, wanted: ClaimFilter, caller: str) -> list[int]:
        """The lanes we have met that this caller may claim from."""
        found = self._matching.get((wanted, caller))
        if found is None:
            found = [i for i, lane in self._known.items() if may_claim(lane, wanted, caller)]
            self._matching[wanted, caller] = found
        return found

    def ensure(self, session: Session, lanes: Iterable[Lane]) -> None:
        """Make sure the lanes exist. They are remembered only once they are read back."""
        missing = [lane for lane in lanes if lane.id not in self._known]
        if missing:
            session.lock("lanes")  # numbers must become visible in their order
            session.run_many(
                ADD,
                [(x.id, *x[:4], " ".join(x.requires), x.assignee, int(x.keyed)) for x in missing],
            )
