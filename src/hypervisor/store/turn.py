"""The plain turn: finish one task and take the next, as one statement of the database.

What a busy worker does all day: it completes one task that has no exclusive
key and that nothing waits for, and takes one from lanes without keys. Each
database runs this as a program of its own, made of the very statements that
`settling` and `claiming` use: SQLite as a trigger, PostgreSQL as a function.
So SQLite's write lock is held for one statement, and PostgreSQL is asked once.

A turn that is not plain after all changes nothing and is taken the general way.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple
from zlib import crc32

from hypervisor.domain import lifecycle
from hypervisor.domain.lease import ClaimRequest, Settled, Token, Usage, Verdict
from hypervisor.store import log
from hypervisor.store.claiming import LEASE, MOST_TRIED, Claimed
from hypervisor.store.dialect import POSTGRES_HEADS
from hypervisor.store.lanes import LaneBook
from hypervisor.store.reading import ATTEMPT, LANE, TASK_COLUMNS
from hypervisor.store.schema import INTO
from hypervisor.store.session import Row
from hypervisor.store.settling import (
    END_ATTEMPTS,
    END_TASKS,
    OUTCOMES,
    SET_RESULT,
    SET_USAGE,
)

DONE = lifecycle.next_state(lifecycle.IN_PROGRESS, "complete")
ENDED = OUTCOMES["complete"]

# What a turn is given, and what it finds out about the next task (`reading.TASK_COLUMNS`).
GIVEN = (
    ("at", "bigint"), ("result", "text"), ("measured", "bigint"), ("exit_code", "bigint"),
    ("cpu_ms", "bigint"), ("peak_kb", "bigint"), ("output_bytes", "bigint"),
    ("worker", "text"), ("nonce", "text"), ("until", "bigint"),
)  # fmt: skip
NONCE = 8
NEXT = (
    ("next", "text"), ("title", "text"), ("state", "text"), ("lane", "bigint"), ("key", "text"),
    ("body", "text"), ("data", "text"), ("start_at", "bigint"), ("retries", "bigint"),
    ("attempts", "bigint"), ("failures", "bigint"), ("crashes", "bigint"),
    ("open_deps", "bigint"), ("deadline", "bigint"), ("last_result", "text"),
    ("reason", "text"), ("unblock", "text"), ("created_at", "bigint"), ("updated_at", "bigint"),
    ("rank", "bigint"), ("youngest_lane", "bigint"), ("next_batch", "text"),
)  # fmt: skip

# Nothing waits for its task, and no lane is new to us.
NEEDED = "SELECT 1 FROM dependencies WHERE needs = ?"
ALONE = f"NOT EXISTS ({NEEDED}) AND (SELECT max(number) FROM lanes) = ?"
BEST = "SELECT id, rank FROM tasks WHERE state = 'active' AND lane = ? ORDER BY rank LIMIT 1"


def filled(sql: str, *values: str) -> str:
    """The statement with these expressions instead of its placeholders. A list of one is an
    equation: for a list, SQLite makes a table each time."""
    first, *rest = sql.replace(" IN (?)", " = ?").split("?")
    return first + "".join(value + part for value, part in zip(values, rest, strict=True))


# The steps, for both databases: `new` is the turn.
END_TASK = filled(
    END_TASKS.format("?"), f"'{DONE}'", "failures", "crashes", "NULL", "NULL", "NULL", "new.at",
    "new.task",
)  # fmt: skip
END_ATTEMPT = filled(
    END_ATTEMPTS.format("?"), "new.at", f"'{ENDED}'", f"'{DONE}'", "NULL", "new.task"
)
KEEP_RESULT = filled(SET_RESULT, "new.result", "new.task")
KEEP_USAGE = filled(
    SET_USAGE, "new.exit_code", "new.cpu_ms", "new.peak_kb", "new.output_bytes", "new.task",
    "new.attempt",
)  # fmt: skip
TAKE_TASK = filled(LEASE.format("?"), "new.until", "new.at", "new.next")
NOTE_ATTEMPT = f"""
{INTO["attempts"]}
SELECT new.next, new.attempts + 1, new.nonce, new.worker, new.at WHERE new.next IS NOT NULL
"""
NOTE_EVENTS = f"""
{INTO["events"]}
SELECT new.at, 'complete', new.task, new.batch, new.attempt, '{DONE}', new.actor, NULL
UNION ALL
SELECT new.at, 'claim', new.next, new.next_batch, new.attempts + 1, 'in_progress', new.worker, NULL
WHERE new.next IS NOT NULL
"""

# SQLite: a turn is a row put into a view, and the trigger does the work.
_COLUMNS = ("task", "attempt", "batch", "actor", *(name for name, _ in GIVEN + NEXT))
SQLITE_PROGRAM = (
    f"CREATE TEMP VIEW turn AS SELECT {', '.join(f'NULL AS {name}' for name in _COLUMNS)}",
    f"""
    CREATE TEMP TRIGGER take_turn INSTEAD OF INSERT ON turn BEGIN
        {END_TASK};
        {END_ATTEMPT};
        {KEEP_RESULT} AND new.result IS NOT NULL;
        {KEEP_USAGE} AND new.measured;
        {TAKE_TASK};
        {NOTE_ATTEMPT};
        {NOTE_EVENTS};
    END
    """,
)


@lru_cache
def sqlite_turn(lanes: int) -> str:
    """Takes what a turn is given, that many lanes, the token, the lanes and its task again, the
    latest lane."""
    best = " UNION ALL ".join([f"SELECT * FROM ({BEST})"] * lanes)
    return f"""
    INSERT INTO turn
    SELECT e.id, e.attempt, e.batch, a.worker, {", ".join("?" * len(GIVEN))},
        {TASK_COLUMNS}, t.batch
    FROM tasks e
    JOIN attempts a ON a.task = e.id AND a.number = e.attempt
    LEFT JOIN tasks t ON t.id = (SELECT id FROM ({best}) ORDER BY rank LIMIT 1)
    LEFT JOIN details d ON d.task = t.id
    WHERE e.id = ? AND e.attempt = ? AND a.nonce = ? AND e.state = 'in_progress'
        AND e.lane IN ({", ".join("?" * lanes)}) AND {ALONE}
    RETURNING {", ".join(name for name, _ in NEXT)}
    """


# PostgreSQL: a function. Its statements see what was committed before each of them, so what
# waits for the task is looked for again once it is locked: nothing can come up any more.
_PARAMETERS = (*(kind for _, kind in GIVEN), "bigint[]", "text", "bigint", "text", "bigint")
_LANES, _TASK, _ATTEMPT, _NONCE, _LATEST = (f"${len(GIVEN) + i}" for i in range(1, 6))
_MEANT = {
    **{name: f"${i}" for i, (name, _) in enumerate(GIVEN, 1)},
    "task": _TASK, "attempt": _ATTEMPT, "batch": "ended.batch", "actor": "ended.worker",
    "next": f"({filled(BEST, 'best').replace(', rank', '', 1)} FOR UPDATE SKIP LOCKED)",
}  # fmt: skip
_PICKED = {"next": "picked.id", "next_batch": "picked.batch", "attempts": "picked.attempts"}


def _meant(sql: str, **picked: str) -> str:
    """A step, with the function's parameters and variables for what `new` has."""
    meant = {**_MEANT, **picked}
    for name in sorted(meant, key=len, reverse=True):  # `attempts` before `attempt`
        sql = sql.replace(f"new.{name}", meant[name])
    return sql


_BODY = f"""
#variable_conflict use_column
DECLARE ended record; picked record; best bigint := {_LANES}[1];
BEGIN
    {_meant(END_TASK).replace("WHERE", "FROM attempts a WHERE")}
        AND attempt = {_ATTEMPT} AND state = 'in_progress' AND lane = ANY({_LANES})
        AND a.task = {_TASK} AND a.number = {_ATTEMPT} AND a.nonce = {_NONCE}
        AND {filled(ALONE, _TASK, _LATEST)}
    RETURNING batch, a.worker INTO ended;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF EXISTS ({filled(NEEDED, _TASK)}) THEN
        RAISE serialization_failure;
    END IF;
    IF cardinality({_LANES}) > 1 THEN
        SELECT lane INTO best FROM ({filled(POSTGRES_HEADS, _LANES)}) AS h ORDER BY rank LIMIT 1;
    END IF;
    {_meant(TAKE_TASK).replace("UPDATE tasks", "UPDATE tasks t", 1)
        .replace("WHERE", "FROM details d WHERE d.task = t.id AND", 1)}
    RETURNING {TASK_COLUMNS.replace("t.attempt", "t.attempt - 1 AS attempts")}, t.batch
    INTO picked;
    IF {_meant("new.result")} IS NOT NULL THEN {_meant(KEEP_RESULT)}; END IF;
    IF {_meant("new.measured")} = 1 THEN {_meant(KEEP_USAGE)}; END IF;
    WITH ending AS ({_meant(END_ATTEMPT)}), taking AS ({_meant(NOTE_ATTEMPT, **_PICKED)})
    {_meant(NOTE_EVENTS, **_PICKED)};
    RETURN NEXT picked;
END
"""  # fmt: skip
POSTGRES_NAME = f"turn_{crc32(_BODY.encode()):08x}"  # each version of the program has its own
POSTGRES_PROGRAM = f"""
CREATE OR REPLACE FUNCTION {POSTGRES_NAME}({", ".join(_PARAMETERS)})
RETURNS SETOF record LANGUAGE plpgsql AS $${_BODY}$$
"""
POSTGRES_TURN = f"""
SELECT * FROM {POSTGRES_NAME}({", ".join("?" * len(_PARAMETERS))})
AS ({", ".join(f"{name} {kind}" for name, kind in NEXT)})
"""


class Plain(NamedTuple):
    """A turn that looks plain from here."""

    given: Row
    lanes: list[int]
    held: Token
    latest: int


def plain(
    book: LaneBook, verdicts: Sequence[Verdict], request: ClaimRequest, nonces: list[str], now: int
) -> Plain | None:
    """The turn, if it can be plain: one completed, one wanted, and no keys in sight."""
    if len(verdicts) != 1 or request.limit != 1 or verdicts[0].event != "complete":
        return None
    if verdicts[0].receipts:
        return None
    lanes = book.matching(request.wanted, request.worker.name)
    if not 0 < len(lanes) <= MOST_TRIED or book.any_keyed(lanes):
        return None
    verdict = verdicts[0]
    given = (
        now, log.dump(verdict.result), int(verdict.usage is not None),
        *(verdict.usage or Usage()), request.worker.id, nonces[0], now + request.lease,
    )  # fmt: skip
    return Plain(given, lanes, verdict.token, book.latest)


def outcome(book: LaneBook, turn: Plain, row: Row) -> tuple[list[Settled], list[Claimed]]:
    """What a turn that was taken has brought: the end of an attempt, and maybe the next task."""
    ended = [Settled(str(turn.held), turn.held.task, DONE, ENDED, repeated=False)]
    if row[0] is None:
        return ended, []
    token = Token(row[0], row[ATTEMPT] + 1, turn.given[NONCE])
    return ended, [Claimed(token, book.known(row[LANE]), row)]
