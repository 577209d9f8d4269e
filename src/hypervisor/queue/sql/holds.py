"""Chunks as those see them who add or reopen tasks: is one held, was it decided too early?"""

from __future__ import annotations

from collections.abc import Collection

from hypervisor.store.database import Session, marks, pad, slices

HELD_AMONG = "SELECT number FROM chunks WHERE batch = ? AND state = 'held' AND number IN ({})"
UNDECIDE = """
UPDATE chunks SET state = 'open', decided_at = NULL
WHERE batch = ? AND number = ? AND state IN ('approved', 'rejected')
"""


def lock(session: Session, batch: str) -> None:
    """Whether a chunk is held must not change between looking and writing."""
    session.lock(f"chunks {batch}")


def held_among(session: Session, batch: str, numbers: Collection[int]) -> set[int]:
    wanted = sorted(number for number in numbers if number)
    if wanted:
        lock(session, batch)
    return {
        row[0]
        for some in slices(wanted)
        for row in session.rows(HELD_AMONG.format(marks(len(some))), [batch, *pad(some)])
    }


def undecide(session: Session, batch: str, numbers: Collection[int]) -> None:
    """There is work in these chunks that nobody has looked at: what was decided is void."""
    for number in sorted(number for number in numbers if number):
        session.run(UNDECIDE, (batch, number))
