"""Statements about outputs that every host can read."""

from __future__ import annotations

from collections.abc import Sequence

from hypervisor.core.records import NamedTuple
from hypervisor.store.database import Session, marks, pad, slices

COLUMNS = "task, attempt, host, place, start, size, sealed, at, text"
ONE_ROW = f"({', '.join('?' * 9)})"
UPSERT = f"""
INSERT INTO {{table}} ({COLUMNS}) VALUES {{rows}}
ON CONFLICT (task, attempt) DO UPDATE SET host = excluded.host, place = excluded.place,
    start = excluded.start, size = excluded.size, sealed = excluded.sealed, at = excluded.at,
    text = excluded.text
"""
GET = f"SELECT {COLUMNS} FROM {{table}} WHERE task = ? AND attempt = ?"
LAST = """
SELECT task, attempt,
    CASE WHEN length(text) > 2000 THEN substr(text, length(text) - 1999) ELSE text END
FROM {table} WHERE task IN ({marks})
"""
OLD = "SELECT task, attempt, size FROM output_ends WHERE at < ? ORDER BY at LIMIT ?"
PLACES = "SELECT task, attempt, place, sealed FROM {table} WHERE task IN ({marks})"
DELETE = "DELETE FROM {table} WHERE task = ? AND attempt = ?"
INCOMPLETE = f"""
SELECT {COLUMNS} FROM output_ends WHERE host = ? AND sealed < start ORDER BY at LIMIT ?
"""
# A host that died has left the last part of what its attempts printed.
KEEP_OLD_TAILS = f"""
INSERT INTO output_ends ({COLUMNS}) SELECT {COLUMNS} FROM output_tails WHERE at < ?
ON CONFLICT (task, attempt) DO NOTHING
"""
DELETE_OLD_TAILS = "DELETE FROM output_tails WHERE at < ?"
ANY_TAIL = "SELECT 1 FROM output_tails WHERE at < ? LIMIT 1"
WHERE_IT_RAN = """
SELECT w.host FROM attempts a JOIN workers w ON w.id = a.worker WHERE a.task = ? AND a.number = ?
"""
ENDS, TAILS = "output_ends", "output_tails"
ROWS = 50  # in one statement


class Kept(NamedTuple):
    """An output as the database has it."""

    task: str
    attempt: int
    host: str
    place: str  # the URL of the output store, or the path of the file on its host
    start: int  # the first byte in `text`
    size: int
    sealed: int  # how many bytes are in the output store
    at: int
    text: bytes

    @property
    def is_complete(self) -> bool:
        return self.sealed >= self.start


def save_ends(session: Session, outputs: Sequence[Kept]) -> None:
    _save(session, ENDS, outputs)


def save_tails(session: Session, outputs: Sequence[Kept]) -> None:
    _save(session, TAILS, outputs)


def _save(session: Session, table: str, outputs: Sequence[Kept]) -> None:
    for at in range(0, len(outputs), ROWS):
        page = outputs[at : at + ROWS]
        statement = UPSERT.format(table=table, rows=", ".join([ONE_ROW] * len(page)))
        session.run(statement, [value for output in page for value in output])


def get(session: Session, task: str, attempt: int) -> Kept | None:
    """The output of an attempt; of one that has not ended, what is known of it so far."""
    for table in (ENDS, TAILS):
        for row in session.rows(GET.format(table=table), (task, attempt)):
            return _kept(row)
    return None


def last_parts(session: Session, tasks: Sequence[str]) -> dict[tuple[str, int], bytes]:
    """The last 2,000 bytes of each output of these tasks."""
    found: dict[tuple[str, int], bytes] = {}
    for table in (TAILS, ENDS):
        for page in slices(tasks):
            statement = LAST.format(table=table, marks=marks(len(page)))
            for task, attempt, text in session.rows(statement, pad(page)):
                found[task, attempt] = bytes(text)
    return found


def ended_before(session: Session, before: int, limit: int) -> list[tuple[str, int, int]]:
    """Outputs with their sizes, oldest first."""
    return [(row[0], row[1], row[2]) for row in session.rows(OLD, (before, limit))]


def places(session: Session, tasks: Sequence[str]) -> list[tuple[str, int, str, int]]:
    """Where outputs of these tasks are, and how much of them is in an output store."""
    return [
        (row[0], row[1], row[2], row[3])
        for table in (ENDS, TAILS)
        for part in slices(tasks)
        for row in session.rows(PLACES.format(table=table, marks=marks(len(part))), pad(part))
    ]


def delete(session: Session, outputs: Sequence[tuple[str, int]]) -> None:
    for table in (ENDS, TAILS):
        session.run_many(DELETE.format(table=table), outputs)


def delete_tails(session: Session, outputs: Sequence[tuple[str, int]]) -> None:
    session.run_many(DELETE.format(table=TAILS), outputs)


def incomplete(session: Session, host: str, limit: int) -> list[Kept]:
    """Ended outputs of a host that no other host can read as a whole, oldest first."""
    return [_kept(row) for row in session.rows(INCOMPLETE, (host, limit))]


def any_tail_before(session: Session, before: int) -> bool:
    return bool(session.rows(ANY_TAIL, (before,)))


def keep_tails_before(session: Session, before: int) -> None:
    """Keep what is left of attempts whose host says nothing more."""
    session.run(KEEP_OLD_TAILS, (before,))
    session.run(DELETE_OLD_TAILS, (before,))


def host_of(session: Session, task: str, attempt: int) -> str:
    """The host of an attempt; "" if it is unknown."""
    return next((row[0] for row in session.rows(WHERE_IT_RAN, (task, attempt))), "")


def _kept(row: tuple[object, ...]) -> Kept:
    kept = Kept(*row)  # type: ignore[arg-type]
    return kept._replace(text=bytes(kept.text))
