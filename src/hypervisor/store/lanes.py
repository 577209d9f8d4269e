"""The lanes of a store, remembered by every process: a lane never changes once it exists."""

from __future__ import annotations

from collections.abc import Iterable

from hypervisor.domain.lane import Lane
from hypervisor.store.session import Session

ADD = """
INSERT INTO lanes (id, batch, type, branch, priority, requires, assignee, keyed)
VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
"""
ALL = "SELECT id, batch, type, branch, priority, requires, assignee, keyed FROM lanes"


class LaneBook:
    """Finds lanes by id, reading the table only for ids it has not met."""

    def __init__(self) -> None:
        self._known: dict[int, Lane] = {}

    def get(self, session: Session, lane_id: int) -> Lane:
        if lane_id not in self._known:
            for row in session.rows(ALL):
                requires = tuple(row[5].split(" ")) if row[5] else ()
                self._known[row[0]] = Lane(
                    row[1], row[2], row[3], row[4], requires, row[6], bool(row[7])
                )
        return self._known[lane_id]

    @staticmethod
    def ensure(session: Session, lanes: Iterable[Lane]) -> None:
        """Make sure the lanes exist. They are remembered only once they are read back."""
        session.run_many(
            ADD, [(x.id, *x[:4], " ".join(x.requires), x.assignee, int(x.keyed)) for x in lanes]
        )
