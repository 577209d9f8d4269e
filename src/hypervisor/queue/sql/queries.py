"""Looking: tasks, lists, counts and events, without changing anything."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from hypervisor.core.errors import AmbiguousId, InvalidInput, NotFound
from hypervisor.core.ids import LENGTH, SHORTEST_PREFIX, clean
from hypervisor.queue import lifecycle
from hypervisor.queue.event import Event
from hypervisor.queue.lane import Lane
from hypervisor.queue.sql import event_log
from hypervisor.queue.sql.lanes import get_lane
from hypervisor.queue.task import Attempt, Batch, Stats, Task, TaskDetail, TaskFilter
from hypervisor.store.database import Database, Row, Session, marks, pad, slices

PACE_WINDOW = 300_000

ASCII_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
TASK_COLUMNS = """
t.id, d.title, t.state, t.lane, d.key, d.body, d.data, t.start_at, t.retries, t.attempt,
    t.failures, t.crashes, t.open_deps, t.deadline, d.result, t.reason, t.unblock,
    t.created_at, t.updated_at, t.rank, (SELECT max(number) FROM lanes)
"""
TASK = f"SELECT {TASK_COLUMNS} FROM tasks t JOIN details d ON d.task = t.id "
LANE, ATTEMPT, RANK, YOUNGEST_LANE = 3, 9, 19, 20  # where a claim finds them in such a row
BY_PREFIX = "SELECT id FROM tasks WHERE id >= ? AND id <= ? ORDER BY id LIMIT 2"
BATCH_BY_NAME = "SELECT id, name, created_at, spec FROM batches WHERE name = ?"
BATCH_BY_PREFIX = "SELECT id, name, created_at, spec FROM batches WHERE id >= ? AND id <= ? LIMIT 2"
BATCHES = "SELECT id, name, created_at, spec FROM batches ORDER BY id DESC LIMIT ?"
KEYS = "SELECT key FROM task_keys WHERE task = ? ORDER BY key"
NEEDS = """
SELECT d.needs, n.state FROM dependencies d JOIN tasks n ON n.id = d.needs
WHERE d.task = ? ORDER BY d.needs
"""
ATTEMPTS = """
SELECT number, worker, claimed_at, ended_at, outcome, reason, exit_code, cpu_ms, peak_kb,
    output_bytes
FROM attempts WHERE task = ? ORDER BY number
"""
COUNTS = """
SELECT l.type, t.state, count(*) FROM tasks t JOIN lanes l ON l.id = t.lane
WHERE ({everything} = 1 OR t.batch = ?) GROUP BY l.type, t.state
"""

EVENT_TIME = "SELECT at FROM events WHERE id >= ? ORDER BY id LIMIT 1"
PACE = """
SELECT kind, count(*) FROM events
WHERE id >= ? AND at >= ? AND ({everything} = 1 OR batch = ?) AND task <> ''
GROUP BY kind
"""


def tasks(session: Session, ids: Sequence[str]) -> list[Task]:
    """Whole tasks by id, in the order of their ids."""
    return [
        make_task(get_lane(session, row[3]), row)
        for some in slices(ids)
        for row in session.rows(
            TASK + f"WHERE t.id IN ({marks(len(some))}) ORDER BY t.id", pad(some)
        )
    ]


def task(session: Session, task_id: str) -> Task:
    return tasks(session, [task_id])[0]


def detail(session: Session, task_id: str) -> TaskDetail:
    needs = session.rows(NEEDS, (task_id,))
    return TaskDetail(
        task(session, task_id),
        tuple(row[0] for row in session.rows(KEYS, (task_id,))),
        tuple(row[0] for row in needs),
        tuple(row[0] for row in needs if row[1] != lifecycle.DONE),
        tuple(Attempt(*row) for row in session.rows(ATTEMPTS, (task_id,))),
    )


def list_tasks(
    session: Session, wanted: TaskFilter, limit: int, before: str | None = None
) -> list[Task]:
    """Newest first; `before` is the last id of the page before."""
    tests, values = _conditions(wanted)
    if before is not None:
        tests.append("t.id < ?")
        values.append(before)
    where = "WHERE " + " AND ".join(tests) if tests else ""
    sql = TASK + f"JOIN lanes l ON l.id = t.lane {where} ORDER BY t.id DESC LIMIT ?"
    return [
        make_task(get_lane(session, row[3]), row) for row in session.rows(sql, [*values, limit])
    ]


def resolve(session: Session, text: str) -> str:
    """The one task id that `text` is, or is a prefix of."""
    prefix = clean(text)
    if len(prefix) < SHORTEST_PREFIX:
        raise InvalidInput(
            f"{text!r} is too short for an id: type {SHORTEST_PREFIX} or more of it."
        )
    found = session.rows(BY_PREFIX, _range(prefix))
    if not found:
        raise NotFound(f"no task has the id {text!r}. `hv ls` lists them.")
    if len(found) > 1:
        raise AmbiguousId(
            f"{text!r} fits several tasks, {found[0][0]} among them. Type more of it."
        )
    return str(found[0][0])


def batch(session: Session, text: str) -> Batch:
    """The batch of that name, id or unique id prefix."""
    found = session.rows(BATCH_BY_NAME, (text,))
    if not found and len(text) >= SHORTEST_PREFIX:
        with suppress(InvalidInput):
            found = session.rows(BATCH_BY_PREFIX, _range(clean(text)))
    if not found:
        raise NotFound(f"no batch is called {text[:60]!r}. `hv stats --batches` lists them.")
    if len(found) > 1:
        raise AmbiguousId(f"{text!r} fits several batches, {found[0][0]} among them.")
    return make_batch(found[0])


def batches(session: Session, limit: int) -> list[Batch]:
    return [make_batch(row) for row in session.rows(BATCHES, (limit,))]


def make_batch(row: Row) -> Batch:
    return Batch(row[0], row[1], row[2], event_log.load(row[3]))


def stats(
    session: Session,
    batch_id: str | None,
    now: int,
    pace: bool = True,
    window: int = PACE_WINDOW,
) -> Stats:
    """Counts; with the pace, which costs as much as there were events in the window."""
    states = dict.fromkeys(lifecycle.STATES, 0)
    types: dict[str, dict[str, int]] = {}
    sql = COUNTS.format(everything=int(batch_id is None))
    for kind, state, count in session.rows(sql, (batch_id or "",)):
        states[state] += count
        types.setdefault(kind, {})[state] = count
    total = sum(states.values())
    ended = sum(states[state] for state in lifecycle.TERMINAL)
    rates = _pace(session, batch_id, now, window) if pace else {}
    return Stats(
        total,
        states,
        types,
        total - ended,
        states[lifecycle.IN_PROGRESS],
        rates.get("complete", 0.0),
        rates.get("fail", 0.0) + rates.get("poison", 0.0),
        window // 1000,
    )


def _pace(session: Session, batch_id: str | None, now: int, window: int) -> dict[str, float]:
    """Events per minute by kind within the window."""
    low, high = session.rows("SELECT coalesce(min(id), 0), coalesce(max(id), 0) FROM events")[0]
    while low < high:  # times rise with the number: find the window's start by halving
        middle = (low + high) // 2
        if session.rows(EVENT_TIME, (middle,))[0][0] < now - window:
            low = middle + 1
        else:
            high = middle
    sql = PACE.format(everything=int(batch_id is None))
    rows = session.rows(sql, (low, now - window, batch_id or ""))
    return {kind: count * 60_000 / window for kind, count in rows}


def events(store: Database, since: int, limit: int) -> list[Event]:
    """Events numbered above `since`, in order."""
    return [_event(row) for row in store.event_rows(since, limit)]


def end_of_log(store: Database) -> int:
    """The number of the last event, found by halving: there may be millions before it."""
    low, high = 0, 1
    while events(store, high - 1, 1):
        low, high = high, high * 2
    while low + 1 < high:  # the last number that has an event at or behind it
        middle = (low + high) // 2
        low, high = (middle, high) if events(store, middle - 1, 1) else (low, middle)
    return low


def _event(row: Row) -> Event:
    if not (isinstance(row[1], int) and isinstance(row[2], str)):
        raise event_log.damaged(f"event {row[0]} has values of the wrong type")
    return Event._make((*row[:8], event_log.load(row[8])))


def make_task(lane: Lane, row: Row) -> Task:
    """The task behind a row of TASK."""
    return Task(
        row[0],
        row[1],
        row[2],
        lane.type,
        lane.priority,
        lane.batch,
        lane.branch,
        lane.assignee,
        lane.requires,
        row[4],
        row[5],
        event_log.load(row[6]),
        row[7],
        row[8],
        row[9],
        row[10],
        row[11],
        row[12],
        row[13],
        event_log.load(row[14]),
        row[15],
        row[16],
        row[17],
        row[18],
    )


def _range(prefix: str) -> tuple[str, str]:
    """The first and the last id that begin so."""
    return prefix.ljust(LENGTH, "0"), prefix.ljust(LENGTH, "z")


def _conditions(wanted: TaskFilter) -> tuple[list[str], list[Any]]:
    tests: list[str] = []
    values: list[Any] = []
    if wanted.states:
        tests.append(f"t.state IN ({marks(len(wanted.states))})")
        values += pad(wanted.states)
    plain = {
        "t.batch": wanted.batch,
        "l.type": wanted.type,
        "l.branch": wanted.branch,
        "l.priority": wanted.priority,
        "l.assignee": wanted.assignee,
    }
    for column, value in plain.items():
        if value is not None:
            tests.append(f"{column} = ?")
            values.append(value)
    if wanted.text is not None:
        tests.append("(lower(d.title) LIKE ? ESCAPE '!' OR lower(d.key) LIKE ? ESCAPE '!')")
        escaped = wanted.text.translate(ASCII_LOWER)  # as both databases do it
        for special in "!%_":
            escaped = escaped.replace(special, "!" + special)
        values += [f"%{escaped}%"] * 2
    return tests, values
