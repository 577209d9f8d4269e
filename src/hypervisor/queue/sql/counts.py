"""How many tasks there are by batch, type and state, without counting them.

`counts` holds the numbers as of the event in `counted_events`. A worker writes nothing for them:
what its claims and results changed since then is read from the event log, which is written in the
same transaction. All else that changes a state, but whose event does not tell the state before
(adding, cancelling, reopening, deleting), writes a line into `count_changes`. `fold` moves both
into `counts`, so that a reader has few events to add up. See decision 0085.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Sequence

from hypervisor.queue import lifecycle
from hypervisor.queue.lifecycle import IN_PROGRESS, TRANSITIONS
from hypervisor.store.database import Session, marks, pad

# The state before each event that has only one. An event of an attempt ends it.
BEFORE = {
    event: states[0]
    for event in lifecycle.EVENTS
    if len(states := [state for state, known in TRANSITIONS if known == event]) == 1
}
KINDS = ", ".join(f"'{event}'" for event in (*BEFORE, "cancel"))
MOVES = f"""
SELECT e.batch, l.type, e.kind, e.state, count(*)
FROM ({{events}}) e JOIN tasks t ON t.id = e.task JOIN lanes l ON l.id = t.lane
WHERE e.state IS NOT NULL AND e.kind IN ({KINDS}) AND (e.kind <> 'cancel' OR e.attempt IS NOT NULL)
    {{more}}
GROUP BY e.batch, l.type, e.kind, e.state
"""
COUNTED = "SELECT number FROM counted_events"
LATEST = "SELECT coalesce(max({}), 0) FROM events"
ARCHIVED = "SELECT id FROM batches WHERE archived_at IS NOT NULL"
KEPT = """
SELECT batch, type, state, tasks FROM counts WHERE {0}
UNION ALL SELECT batch, type, state, tasks FROM count_changes WHERE {0}
"""
OF_BATCHES = "batch IN ({})"
OF_ALL = f"batch NOT IN ({ARCHIVED})"
TAKE_CHANGES = "DELETE FROM count_changes RETURNING batch, type, state, tasks"
ADD = """
INSERT INTO counts (batch, type, state, tasks) VALUES (?, ?, ?, ?)
ON CONFLICT (batch, type, state) DO UPDATE SET tasks = counts.tasks + excluded.tasks
"""
SET_COUNTED = "UPDATE counted_events SET number = ? WHERE number < ? RETURNING 1"
FIRST_COUNTED = "INSERT INTO counted_events (number) VALUES (?)"
OF_TASKS = """
SELECT t.batch, l.type, t.state, -count(*) FROM tasks t JOIN lanes l ON l.id = t.lane
WHERE t.id IN ({}) GROUP BY t.batch, l.type, t.state
"""
FORGET = "DELETE FROM {} WHERE batch = ?"
BY_COUNTING = """
SELECT t.batch, l.type, t.state, count(*) FROM tasks t JOIN lanes l ON l.id = t.lane
GROUP BY t.batch, l.type, t.state
"""

MOVED_BATCHES = """
SELECT batch FROM (SELECT id AS batch FROM batches WHERE id IN ({}) UNION ALL SELECT '') b WHERE {}
"""

Key = tuple[str, str, str]  # batch, type, state
Change = tuple[str, str, str, int]


class Moves:
    """What the events after `counted_events` have moved. Each is read once per process: without a
    supervisor there may be many, and a dashboard looks at the counts all the time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.rolled_back()

    def rolled_back(self) -> None:
        self._since, self._latest = -1, 0
        self._total: Counter[Key] = Counter()

    def read(self, session: Session) -> Counter[Key]:
        since, latest = counted(session), last_event(session)
        with self._lock:
            # Another thread may have looked at a later state of the store.
            is_known = self._since == since and self._latest <= latest
            start = self._latest if is_known else since
            total = Counter(self._total if is_known else {})
        sql = MOVES.format(events=session.events_after, more="AND e.id <= ?")
        if latest > start:
            _move(total, session.rows(sql, (start, latest)))
        with self._lock:
            self._since, self._latest, self._total = since, latest, Counter(total)
        sql = MOVES.format(events=session.events_after, more="")
        _move(total, session.rows(sql, (latest,)))  # those without a number
        return total


def counts(session: Session, batches: Sequence[str] | None = None) -> Counter[Key]:
    """The number of tasks by batch, type and state; of these batches, or of all that are not
    archived."""
    if batches is None:
        return _counts(session, OF_ALL, [])
    return _counts(session, OF_BATCHES.format(marks(len(batches))), pad(batches))


def counted(session: Session) -> int:
    """The number of the last event that is in `counts`."""
    rows = session.rows(COUNTED)
    return int(rows[0][0]) if rows else 0


def uncounted(session: Session) -> int:
    """How many events are not in `counts` yet, of all kinds."""
    return last_event(session) - counted(session)


def last_event(session: Session) -> int:
    """The number of the last event that has one."""
    return int(session.rows(LATEST.format(session.event_number))[0][0])


def change(session: Session, changes: Iterable[Change]) -> None:
    """Record what an event does not tell."""
    session.insert("count_changes", list(changes))


def fold(session: Session) -> None:
    """Add what changed since to `counts`. Events that have no number yet are left for later."""
    session.lock("counts")
    since = counted(session)
    latest = last_event(session)
    total: Counter[Key] = Counter()
    for *key, tasks in session.rows(TAKE_CHANGES):
        total[key[0], key[1], key[2]] += tasks
    sql = MOVES.format(events=session.events_after, more="AND e.id <= ?")
    _move(total, session.rows(sql, (since, latest)))
    session.run_many(ADD, [(*key, tasks) for key, tasks in sorted(total.items()) if tasks])
    if latest > since and not session.rows(SET_COUNTED, (latest, latest)):
        session.run(FIRST_COUNTED, (latest,))


def fold_all(session: Session) -> None:
    """The same with all events, before the type of a task changes or the task is deleted: the type
    is not in its events."""
    session.number_events()
    fold(session)


def delete(session: Session, tasks: Sequence[str]) -> None:
    """These tasks are about to be deleted."""
    fold_all(session)
    rows = session.rows(OF_TASKS.format(marks(len(tasks))), pad(tasks))
    change(session, [(batch, kind, state, tasks) for batch, kind, state, tasks in rows])


def forget(session: Session, batch: str) -> None:
    """The batch is gone."""
    for table in ("counts", "count_changes"):
        session.run(FORGET.format(table), (batch,))


def corrections(session: Session) -> list[Change]:
    """What must be added to be right, by counting all tasks. Nothing, unless a process of an older
    version is still running: it may be recorded at any later time, by `change`."""
    missing: Counter[Key] = Counter()
    for *key, tasks in session.rows(BY_COUNTING):
        missing[key[0], key[1], key[2]] += tasks
    missing.subtract(_counts(session, "batch IS NOT NULL", []))
    return [(*key, tasks) for key, tasks in sorted(missing.items()) if tasks]


def _counts(session: Session, of: str, values: Sequence[str]) -> Counter[Key]:
    total: Counter[Key] = Counter()
    for *key, tasks in session.rows(KEPT.format(of), [*values, *values]):
        total[key[0], key[1], key[2]] += tasks
    moved = session.caches.of(Moves).read(session)
    names = sorted({batch for batch, _, _ in moved})
    sql = MOVED_BATCHES.format(marks(len(names)), of)
    wanted = {row[0] for row in session.rows(sql, [*pad(names), *values])} if names else set()
    total.update({key: tasks for key, tasks in moved.items() if key[0] in wanted})
    return Counter({key: tasks for key, tasks in total.items() if tasks})


def _move(total: Counter[Key], rows: Iterable[Sequence[object]]) -> None:
    for batch, kind, event, state, tasks in rows:
        before = BEFORE.get(str(event), IN_PROGRESS)
        assert isinstance(tasks, int)
        total[str(batch), str(kind), before] -= tasks
        total[str(batch), str(kind), str(state)] += tasks
