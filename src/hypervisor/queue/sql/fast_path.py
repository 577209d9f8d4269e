"""The fast path: complete one task and claim the next, as one statement of the database.

The usual step of a busy worker: it completes one task that has no exclusive
key, no dependents and is not merged, and claims one from lanes like that. Each
database runs this as a program of its own, made of the same statements that
`settlement` and `claims` use: SQLite as a trigger, PostgreSQL as a function.
So SQLite's write lock is held for one statement, and PostgreSQL needs one
round trip.

If it turns out not to apply, nothing is changed and the general path is taken.
Bar: claim and complete at k=1, on both databases; see decision 0020.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING
from zlib import crc32

from hypervisor.core.records import NamedTuple
from hypervisor.queue import lifecycle
from hypervisor.queue.lease import AttemptResult, ClaimRequest, Lease, SettledResult, Token, Usage
from hypervisor.queue.sql import event_log, picking
from hypervisor.queue.sql.claims import LEASE
from hypervisor.queue.sql.lanes import LaneBook, get_lane
from hypervisor.queue.sql.settlement import (
    COUNTERS,
    END_ATTEMPTS,
    END_TASKS,
    EXPLANATION,
    OUTCOMES,
    SET_RESULT,
    USAGE,
)
from hypervisor.queue.task import Task
from hypervisor.store.database import Row
from hypervisor.store.dialect import POSTGRES_HEADS
from hypervisor.store.schema import INTO, VERSION

if TYPE_CHECKING:
    from hypervisor.store.database import Database
    from hypervisor.store.postgres import PostgresDatabase
    from hypervisor.store.sqlite import SqliteDatabase

DONE = lifecycle.next_state(lifecycle.IN_PROGRESS, "complete")
ENDED = OUTCOMES["complete"]
UNKNOWN = Usage()
FROM_ANY: list[int] = []  # all lanes that there are

# The values passed in, and those read from the next task: all that can differ among active tasks.
GIVEN = (
    ("at", "bigint"),
    ("result", "text"),
    ("exit_code", "bigint"),
    ("cpu_ms", "bigint"),
    ("peak_kb", "bigint"),
    ("output_bytes", "bigint"),
    ("worker", "text"),
    ("nonce", "text"),
    ("until", "bigint"),
)
NEXT = (
    ("next", "t.id"),
    ("title", "d.title"),
    ("lane", "t.lane"),
    ("key", "d.key"),
    ("body", "d.body"),
    ("data", "d.data"),
    ("retries", "t.retries"),
    ("number", "t.attempt + 1"),
    ("failures", "t.failures"),
    ("crashes", "t.crashes"),
    ("last_result", "d.result"),
    ("created_at", "t.created_at"),
)

# The task has no dependents, and there is no lane that we do not know.
NEEDED = "SELECT 1 FROM dependencies WHERE needs = ?"
ALONE = f"NOT EXISTS ({NEEDED}) AND NOT EXISTS (SELECT 1 FROM lanes WHERE number > ?)"
BEST = "SELECT id, rank FROM tasks WHERE state = 'active' AND lane = ? ORDER BY rank LIMIT 1"
BEST_ID = BEST.replace(", rank", "", 1)
BEST_OF_ALL = (
    "SELECT id FROM tasks WHERE state = 'active' AND rank + 0 >= 0 ORDER BY rank + 0 LIMIT 1"
)


def filled(sql: str, *values: str) -> str:
    """The statement with these expressions for its placeholders. A list of one becomes an
    equality, because SQLite builds a table for a list each time."""
    first, *rest = sql.replace(" IN (?)", " = ?").split("?")
    return first + "".join(value + part for value, part in zip(values, rest, strict=True))


# The steps, for both databases; `new` holds the values. The counters do not change, and a claimed
# task has no reason.
END_TASK = filled(
    END_TASKS.format("?").replace(COUNTERS, "").replace(EXPLANATION, ""),
    f"'{DONE}'",
    "NULL",
    "new.at",
    "new.task",
)
END_ATTEMPT = (
    filled(
        END_ATTEMPTS.format("?").replace("reason = ?", USAGE),
        "new.at",
        f"'{ENDED}'",
        f"'{DONE}'",
        "new.exit_code",
        "new.cpu_ms",
        "new.peak_kb",
        "new.output_bytes",
        "new.task",
    )
    + " AND number = new.attempt"
)
KEEP_RESULT = filled(SET_RESULT, "new.result", "new.task")
TAKE_TASK = filled(LEASE.format("?"), "new.until", "new.at", "new.next")
ATTEMPT = "new.next, new.number, new.nonce, new.worker, new.at"
COMPLETED = f"new.at, 'complete', new.task, new.batch, new.attempt, '{DONE}', new.actor, NULL"
CLAIMED = """
new.at, 'claim', new.next, new.next_batch, new.number, 'in_progress', new.worker, NULL
"""

# SQLite: a row is inserted into a view, and the trigger does the work.
_COLUMNS = (
    "task",
    "attempt",
    "batch",
    "actor",
    *(name for name, _ in GIVEN),
    "next_batch",
    *(name for name, _ in NEXT),
)
SQLITE_PROGRAM = (
    f"CREATE TEMP VIEW turn AS SELECT {', '.join(f'NULL AS {name}' for name in _COLUMNS)}",
    f"""
    CREATE TEMP TRIGGER take_turn INSTEAD OF INSERT ON turn BEGIN
        {END_TASK};
        {END_ATTEMPT};
        {KEEP_RESULT} AND new.result IS NOT NULL;
        {TAKE_TASK};
        {INTO["attempts"]} SELECT {ATTEMPT} WHERE new.next IS NOT NULL;
        {INTO["events"]}
        SELECT {COMPLETED} UNION ALL SELECT {CLAIMED} WHERE new.next IS NOT NULL;
    END
    """,
)


@lru_cache
def sqlite_statement(lanes: int) -> str:
    """Its values: GIVEN, that many lanes, the token, the lanes and the task again, the latest
    lane. No lanes: from any. As short as possible: SQLite looks it up by its text while others
    wait."""
    best = " UNION ALL ".join([f"SELECT * FROM ({BEST})"] * lanes)
    best = f"SELECT id FROM ({best}) ORDER BY rank LIMIT 1" if lanes > 1 else BEST_ID
    of_lanes = f"AND e.lane IN ({','.join('?' * lanes)})" if lanes else ""
    best = best if lanes else BEST_OF_ALL
    sql = f"""
    INSERT INTO turn
    SELECT e.id, e.attempt, e.batch, a.worker, {",".join("?" * len(GIVEN))}, t.batch,
        {",".join(column for _, column in NEXT)}
    FROM tasks e
    JOIN attempts a ON a.task = e.id AND a.number = e.attempt
    LEFT JOIN tasks t ON t.id = ({best})
    LEFT JOIN details d ON d.task = t.id
    WHERE e.id = ? AND e.attempt = ? AND a.nonce = ? AND e.state = 'in_progress'
        {of_lanes} AND {ALONE}
    RETURNING {",".join(name for name, _ in NEXT)}
    """
    return " ".join(sql.split())


# PostgreSQL: a function. Each of its statements sees what was committed before it, so dependents
# are looked for again once the task is locked: no more can be added then.
_PARAMETERS = (
    *(kind for _, kind in GIVEN),
    "bigint[]",
    "bigint[]",
    "text",
    "bigint",
    "text",
    "bigint",
)
_LANES, _FLOORS, _TASK, _ATTEMPT, _NONCE, _LATEST = (f"${len(GIVEN) + i}" for i in range(1, 7))
_EXPRESSIONS = {
    **{name: f"${i}" for i, (name, _) in enumerate(GIVEN, 1)},
    "task": _TASK,
    "attempt": _ATTEMPT,
    "batch": "ended",
    "actor": "ended_by",
    "next": "picked.next",
    "next_batch": "picked.batch",
    "number": "picked.number",
}
# By its position in the table, where it is already locked: no second search for it.
_BEST = BEST.replace("id, rank", "ctid", 1).replace(
    "ORDER", f"AND rank >= ? AND NOT EXISTS ({NEEDED}) ORDER", 1
)
_BEST = f"({filled(_BEST, 'best', 'low', _TASK)} FOR UPDATE SKIP LOCKED)"
FIRST_OF_ALL = """
SELECT lane, rank INTO best, low FROM tasks WHERE state = 'active' AND rank + 0 >= low
ORDER BY rank + 0 LIMIT 1 FOR UPDATE SKIP LOCKED
"""


def _for_postgres(sql: str) -> str:
    """A step with the function's parameters and variables for the columns of `new`."""
    for name in sorted(_EXPRESSIONS, key=len, reverse=True):  # `next_batch` before `next`
        sql = sql.replace(f"new.{name}", _EXPRESSIONS[name])
    return sql


# A deadline means that it is in progress: see HEARTBEAT in claims.py. In an upgraded store, the
# general path reports it.
_UPGRADED = f"SELECT 1 FROM schema_version WHERE version > {VERSION}"
_BODY = f"""
#variable_conflict use_column
DECLARE ended text; ended_by text; picked record;
    best bigint := {_LANES}[1]; low bigint := {_FLOORS}[1];
BEGIN
    {_for_postgres(END_TASK)}
        AND attempt = {_ATTEMPT} AND deadline IS NOT NULL
        AND (cardinality({_LANES}) = 0 OR lane = ANY({_LANES}))
        AND {filled(ALONE, _TASK, _LATEST)} AND NOT EXISTS ({_UPGRADED})
    RETURNING batch INTO ended;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    {_for_postgres(END_ATTEMPT)} AND nonce = {_NONCE} RETURNING worker INTO ended_by;
    IF NOT FOUND THEN
        RAISE serialization_failure;
    END IF;
    IF cardinality({_LANES}) = 0 THEN
        {FIRST_OF_ALL};
    ELSIF cardinality({_LANES}) > 1 THEN
        SELECT lane, rank INTO best, low
        FROM ({filled(POSTGRES_HEADS, _LANES, _FLOORS)}) AS h ORDER BY rank LIMIT 1;
    END IF;
    {
    _for_postgres(TAKE_TASK.replace("id = new.next", f"t.ctid = {_BEST}"))
    .replace("UPDATE tasks", "UPDATE tasks t", 1)
    .replace("WHERE", "FROM details d WHERE d.task = t.id AND", 1)
}
    RETURNING {
    ", ".join(f"{column} AS {name}" for name, column in NEXT).replace("t.attempt + 1", "t.attempt")
}, t.batch, t.rank INTO picked;
    IF {_for_postgres("new.result")} IS NOT NULL THEN {_for_postgres(KEEP_RESULT)}; END IF;
    IF picked.next IS NOT NULL THEN
        {INTO["attempts"]} VALUES ({_for_postgres(ATTEMPT)});
        {INTO["events"]} VALUES ({_for_postgres(COMPLETED)}), ({_for_postgres(CLAIMED)});
    ELSIF EXISTS ({filled(NEEDED, _TASK)}) THEN
        RAISE serialization_failure;
    ELSE
        {INTO["events"]} VALUES ({_for_postgres(COMPLETED)});
    END IF;
    RETURN json_build_array({", ".join(f"picked.{name}" for name, _ in NEXT)}, picked.rank);
END
"""
_TAKES = f"({', '.join(_PARAMETERS)})"
_REST = f"{_TAKES}\nRETURNS json LANGUAGE plpgsql AS $${_BODY}$$\n"
POSTGRES_NAME = f"turn_{crc32(_REST.encode()):08x}"  # each version of the program has its own
POSTGRES_SIGNATURE = f"{POSTGRES_NAME}{_TAKES}"
POSTGRES_PROGRAM = f"CREATE OR REPLACE FUNCTION {POSTGRES_NAME}{_REST}"
_VALUES = ", ".join(f"${i}" for i in range(1, len(_PARAMETERS) + 1))
POSTGRES_STATEMENT = f"SELECT {POSTGRES_NAME}({_VALUES})"


class FastPath(NamedTuple):
    """One completed attempt and one claim that may take the fast path. No lanes: from any."""

    given: Row
    lanes: list[int]
    token: Token
    latest: int

    def on_sqlite(self, database: SqliteDatabase) -> Row | None:
        given, lanes, token, latest = self
        values = (*given, *lanes, *token, *lanes, token.task, latest)
        rows = database.run_alone(SQLITE_PROGRAM, sqlite_statement(len(lanes)), values)
        return rows[0] if rows else None

    def on_postgres(self, database: PostgresDatabase) -> Row | None:
        from hypervisor.queue.sql import postgres_fast_path

        return postgres_fast_path.run(database, self)


def fast_path(
    book: LaneBook, verdicts: Sequence[AttemptResult], request: ClaimRequest, nonce: str, now: int
) -> FastPath | None:
    """The fast path if it may apply: one task completed, one wanted, only plain lanes."""
    if len(verdicts) != 1 or request.limit != 1:
        return None
    token, event, result, _, _, _, usage, receipts, proposals = verdicts[0]
    worker = request.worker
    latest = book.latest
    lanes = book.plain(request.wanted, worker.name)
    if event != "complete" or receipts or proposals or not lanes:
        return None
    if len(lanes) > 1 and book.all_match(request.wanted, worker.name):
        lanes = FROM_ANY
        if book.latest != latest:
            return None  # another thread is just reading the lanes
    elif len(lanes) > picking.MAX_TRIED:
        return None
    until = now + request.lease
    given = (now, event_log.dump(result), *(usage or UNKNOWN), worker.id, nonce, until)
    return FastPath(given, lanes, token, latest)


def outcome(store: Database, path: FastPath, row: Row) -> tuple[list[SettledResult], list[Lease]]:
    """The ended attempt, and the next task if there is one."""
    ended = [SettledResult(str(path.token), path.token.task, DONE, ENDED, repeated=False)]
    if row[0] is None:
        return ended, []
    task, title, lane_id, key, body, data, retries, number, failures, crashes, result, created = row
    now, *_, nonce, until = path.given
    # Another thread may have just cleared the lanes.
    lane = store.caches.of(LaneBook).find(lane_id) or store.read(get_lane, lane_id)
    # An active task has neither a start time nor open dependencies.
    taken = Task(
        task,
        title,
        lifecycle.IN_PROGRESS,
        lane.type,
        lane.priority,
        lane.batch,
        lane.branch,
        lane.assignee,
        lane.requires,
        key,
        body,
        event_log.load(data),
        None,
        retries,
        number,
        failures,
        crashes,
        0,
        until,
        event_log.load(result),
        None,
        None,
        created,
        now,
    )
    return ended, [Lease(f"{task}.{number}.{nonce}", until, taken)]
