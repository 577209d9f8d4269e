"""Reading tasks, lists, counts and events, without changing anything."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from hypervisor.core.errors import AmbiguousId, InvalidInput, NotFound
from hypervisor.core.ids import LENGTH, MIN_PART_LENGTH, MIN_PREFIX_LENGTH, clean
from hypervisor.queue import lifecycle
from hypervisor.queue.event import OLD_KINDS, Event, current_data
from hypervisor.queue.lane import Lane
from hypervisor.queue.sql import event_log
from hypervisor.queue.sql.counts import ARCHIVED, counts
from hypervisor.queue.sql.lanes import get_lane
from hypervisor.queue.task import Attempt, Batch, Delay, Stats, Task, TaskDetail, TaskFilter
from hypervisor.store.database import Database, Row, Session, marks, pad, slices

PACE_WINDOW = 300_000
PACE_EVENTS = 50_000  # the window is shorter if it has more

ASCII_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
TASK_COLUMNS = """
t.id, d.title, t.state, t.lane, d.key, d.body, d.data, t.start_at, t.retries, t.attempt,
    t.failures, t.crashes, t.open_deps, t.deadline, d.result, t.reason, t.unblock,
    t.created_at, t.updated_at, t.rank, (SELECT max(number) FROM lanes)
"""
TASK = f"SELECT {TASK_COLUMNS} FROM tasks t JOIN details d ON d.task = t.id "
LANE, ATTEMPT, RANK, YOUNGEST_LANE = 3, 9, 19, 20  # positions in such a row
TEXT = "lower(d.title) LIKE ? ESCAPE '!' OR lower(d.key) LIKE ? ESCAPE '!'"
BY_PREFIX = "SELECT id FROM tasks WHERE id >= ? AND id <= ? ORDER BY id LIMIT 2"
BY_PART = "SELECT id FROM tasks WHERE id LIKE ? ORDER BY id LIMIT 2"
TITLES = "SELECT task, title FROM details WHERE task IN ({})"
BATCH = "SELECT id, name, created_at, spec, archived_at, deleting FROM batches "
BATCH_BY_NAME = BATCH + "WHERE name = ?"
BATCH_BY_PREFIX = BATCH + "WHERE id >= ? AND id <= ? LIMIT 2"
BATCH_BY_PART = BATCH + "WHERE id LIKE ? LIMIT 2"
BATCH_NAMES = "SELECT id, name FROM batches WHERE id IN ({})"
BATCHES = {  # by whether archived ones are wanted; None: too
    False: BATCH + "WHERE archived_at IS NULL ORDER BY id DESC LIMIT ?",
    True: BATCH + "WHERE archived_at IS NOT NULL ORDER BY id DESC LIMIT ?",
    None: BATCH + "ORDER BY id DESC LIMIT ?",
}
DELAYS = """
SELECT CASE WHEN failures > 0 THEN 1 ELSE 0 END AS again, count(*), min(start_at), max(start_at)
FROM tasks
WHERE state = 'waiting' AND start_at IS NOT NULL AND start_at < ? AND open_deps = 0 AND held = 0
    AND ({everything} = 1 OR batch = ?)
GROUP BY again ORDER BY again DESC
"""
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
# Two queries: SQLite finds the smallest or the largest by the index, but not both at once.
EVENT_RANGE = """
SELECT coalesce((SELECT min(id) FROM events), 0), coalesce((SELECT max(id) FROM events), 0)
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
        for part in slices(ids)
        for row in session.rows(
            TASK + f"WHERE t.id IN ({marks(len(part))}) ORDER BY t.id", pad(part)
        )
    ]


def task(session: Session, task_id: str) -> Task:
    """NotFound: it was deleted with its batch."""
    if found := tasks(session, [task_id]):
        return found[0]
    raise NotFound(f"no such task: {task_id}")


def titles(session: Session, ids: Sequence[str]) -> dict[str, str]:
    """The titles of tasks by their ids."""
    return {
        row[0]: row[1]
        for part in slices(ids)
        for row in session.rows(TITLES.format(marks(len(part))), pad(part))
    }


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
    """Tasks, newest first; `before` is the last id of the previous page."""
    if wanted.states and not wanted.archived and not _any_in(session, wanted):
        return []  # without looking at all tasks
    only_text = TaskFilter(text=wanted.text, archived=wanted.archived)
    if wanted.text is not None and wanted == only_text:
        return _by_text(session, wanted, limit, before)
    where, values = _conditions(wanted, before, "t.id", "t.batch")
    rows = session.rows(TASK + f"{where} ORDER BY t.id DESC LIMIT ?", [*values, limit])
    return [make_task(get_lane(session, row[3]), row) for row in rows]


def _by_text(session: Session, wanted: TaskFilter, limit: int, before: str | None) -> list[Task]:
    """All texts are compared, so they are read alone: with each task, it takes twice as long."""
    where, values = _conditions(wanted, before, "d.task", "d.batch")
    sql = f"SELECT d.task FROM details d {where} ORDER BY d.task DESC LIMIT ?"
    newest_first = [row[0] for row in session.rows(sql, [*values, limit])]
    return tasks(session, newest_first[::-1])[::-1]


def resolve(session: Session, text: str) -> str:
    """The task id that `text` is, or is a unique part of."""
    part = clean(text)
    if len(part) < MIN_PREFIX_LENGTH:
        raise InvalidInput(
            f"{text!r} is too short for an id: give at least {MIN_PREFIX_LENGTH} characters."
        )
    rows = session.rows(BY_PREFIX, _range(part))
    if not rows and MIN_PART_LENGTH <= len(part) < LENGTH:
        rows = session.rows(BY_PART, (f"%{part}%",))
    if not rows:
        raise NotFound(_no_task(text, part))
    if len(rows) > 1:
        raise AmbiguousId(
            f"{text!r} matches several tasks, such as {rows[0][0]}. Give more characters."
        )
    return str(rows[0][0])


def _no_task(text: str, part: str) -> str:
    if len(part) >= MIN_PART_LENGTH:
        return f"no task has the id {text!r}. `hv ls` lists them."
    return (
        f"no id of a task begins with {text!r}. "
        f"Give at least {MIN_PART_LENGTH} characters of the end or the middle; `hv ls` lists ids."
    )


def batch(session: Session, text: str) -> Batch:
    """The batch of that name or id, or with a unique part of its id."""
    rows = session.rows(BATCH_BY_NAME, (text,))
    if not rows and len(text) >= MIN_PREFIX_LENGTH:
        with suppress(InvalidInput):
            rows = _batches_by_part(session, clean(text))
    if not rows:
        raise NotFound(f"no batch named {text[:60]!r}. `hv batches` lists them.")
    if len(rows) > 1:
        raise AmbiguousId(f"{text!r} matches several batches, such as {rows[0][0]}.")
    return make_batch(rows[0])


def _batches_by_part(session: Session, part: str) -> list[tuple[Any, ...]]:
    rows = session.rows(BATCH_BY_PREFIX, _range(part))
    if rows or not MIN_PART_LENGTH <= len(part) < LENGTH:
        return rows
    return session.rows(BATCH_BY_PART, (f"%{part}%",))


def batch_names(session: Session, ids: Sequence[str]) -> dict[str, str]:
    """The names of batches by their ids."""
    return {
        row[0]: row[1]
        for part in slices(ids)
        for row in session.rows(BATCH_NAMES.format(marks(len(part))), pad(part))
    }


def batches(session: Session, limit: int, archived: bool | None = False) -> list[Batch]:
    return [make_batch(row) for row in session.rows(BATCHES[archived], (limit,))]


def make_batch(row: Row) -> Batch:
    return Batch(row[0], row[1], row[2], event_log.load(row[3]), row[4], bool(row[5]))


def stats(
    session: Session,
    batch_id: str | None,
    now: int,
    pace: bool = True,
    window: int = PACE_WINDOW,
) -> Stats:
    """Counts by state and type, with the pace within the window."""
    states = dict.fromkeys(lifecycle.STATES, 0)
    types: dict[str, dict[str, int]] = {}
    counted = counts(session, None if batch_id is None else [batch_id])
    for (_, kind, state), count in counted.items():
        states[state] += count
        by_state = types.setdefault(kind, {})
        by_state[state] = by_state.get(state, 0) + count
    total = sum(states.values())
    ended = sum(states[state] for state in lifecycle.TERMINAL)
    rates, window = _pace(session, batch_id, now, window) if pace else ({}, window)
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


def _pace(
    session: Session, batch_id: str | None, now: int, window: int
) -> tuple[dict[str, float], int]:
    """Events per minute by kind within the window, and the window: the last events have to do if
    there are very many."""
    low, latest = session.rows(EVENT_RANGE)[0]
    high = latest
    while low < high:  # times increase with the number: find the window's start by bisection
        middle = (low + high) // 2
        if session.rows(EVENT_TIME, (middle,))[0][0] < now - window:
            low = middle + 1
        else:
            high = middle
    if latest - low > PACE_EVENTS:
        low = latest - PACE_EVENTS
        window = max(now - session.rows(EVENT_TIME, (low,))[0][0], 1)
    sql = PACE.format(everything=int(batch_id is None))
    rows = session.rows(sql, (low, now - window, batch_id or ""))
    return {kind: count * 60_000 / window for kind, count in rows}, window


def delays(session: Session, batch_id: str | None) -> list[Delay]:
    """Tasks that only wait for their start time, those that failed before first."""
    sql = DELAYS.format(everything=int(batch_id is None))
    rows = session.rows(sql, (lifecycle.NEVER, batch_id or ""))
    return [Delay(bool(row[0]), *row[1:]) for row in rows]


def events(store: Database, since: int, limit: int) -> list[Event]:
    """Events numbered above `since`, in order."""
    return [_event(row) for row in store.event_rows(since, limit)]


def end_of_log(store: Database) -> int:
    """The number of the last event, by bisection: there may be millions before it."""
    low, high = 0, 1
    while events(store, high - 1, 1):
        low, high = high, high * 2
    while low + 1 < high:  # the last number that has an event at or after it
        middle = (low + high) // 2
        low, high = (middle, high) if events(store, middle - 1, 1) else (low, middle)
    return low


def number_before(store: Database, at: int) -> int:
    """The number of the last event before a time, by bisection: times increase with the number."""
    low, high = 0, end_of_log(store)
    while low < high:
        middle = (low + high + 1) // 2
        if (first := events(store, middle - 1, 1)) and first[0].at < at:
            low = middle
        else:
            high = middle - 1
    return low


def _event(row: Row) -> Event:
    if not (isinstance(row[1], int) and isinstance(row[2], str)):
        raise event_log.damaged(f"event {row[0]} has values of the wrong type")
    data = current_data(event_log.load(row[8]))
    return Event._make((*row[:2], OLD_KINDS.get(row[2], row[2]), *row[3:8], data))


def make_task(lane: Lane, row: Row) -> Task:
    """The task in a row of TASK."""
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
    """The first and last possible id with this prefix."""
    return prefix.ljust(LENGTH, "0"), prefix.ljust(LENGTH, "z")


def _any_in(session: Session, wanted: TaskFilter) -> bool:
    """Whether any task is in one of the states, by the counts."""
    counted = counts(session, None if wanted.batch is None else [wanted.batch])
    return any(state in wanted.states for _, _, state in counted)


def _conditions(
    wanted: TaskFilter, before: str | None, id: str, batch: str
) -> tuple[str, list[Any]]:
    """`id` and `batch` are the columns to compare."""
    tests: list[str] = []
    values: list[Any] = []
    if wanted.states:
        tests.append(f"t.state IN ({marks(len(wanted.states))})")
        values += pad(wanted.states)
    if wanted.batch is not None:
        tests.append(f"{batch} = ?")
        values.append(wanted.batch)
    elif not wanted.archived:
        tests.append(f"{batch} NOT IN ({ARCHIVED})")
    if of_lane := _lane_columns(wanted):
        columns = " AND ".join(f"{column} = ?" for column in of_lane)
        tests.append(f"t.lane IN (SELECT id FROM lanes WHERE {columns})")
        values += of_lane.values()
    if wanted.text is not None:
        test, patterns = _text_condition(wanted.text, id)
        tests.append(test)
        values += patterns
    if before is not None:
        tests.append(f"{id} < ?")
        values.append(before)
    return "WHERE " + " AND ".join(tests) if tests else "", values


def _lane_columns(wanted: TaskFilter) -> dict[str, str]:
    columns = {
        "type": wanted.type,
        "branch": wanted.branch,
        "priority": wanted.priority,
        "assignee": wanted.assignee,
    }
    return {column: value for column, value in columns.items() if value is not None}


def _text_condition(text: str, id: str) -> tuple[str, list[str]]:
    """In the title, the key or, if it can be a part of one, the id."""
    escaped = text.translate(ASCII_LOWER)  # like lower() in both databases
    for special in "!%_":
        escaped = escaped.replace(special, "!" + special)
    test, patterns = TEXT, [f"%{escaped}%"] * 2
    with suppress(InvalidInput):
        part = clean(text)
        if len(part) >= MIN_PREFIX_LENGTH:
            test += f" OR {id} LIKE ?"
            patterns.append(f"%{part}%" if len(part) >= MIN_PART_LENGTH else f"{part}%")
    return f"({test})", patterns
