"""The learner's queries of ended attempts, and its records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hypervisor.learning.record import Record, record_data, record_from
from hypervisor.queue.history import EndedAttempt
from hypervisor.queue.sql.lanes import get_lane
from hypervisor.store.database import Row, Session, marks, pad, slices

if TYPE_CHECKING:
    from hypervisor.queue.context import Context

PRIOR = "SELECT prior FROM parallel_priors WHERE type = ?"
PRIORS = "SELECT type, prior FROM parallel_priors"
SET_PRIOR = """
INSERT INTO parallel_priors (type, prior) VALUES (?, ?)
ON CONFLICT (type) DO UPDATE SET prior = excluded.prior
"""
RECORDS = "SELECT kind, record FROM learned_records WHERE host = ?"
SET_RECORD = """
INSERT INTO learned_records (host, kind, record) VALUES (?, ?, ?)
ON CONFLICT (host, kind) DO UPDATE SET record = excluded.record
"""
CURSOR = "SELECT number FROM learner_cursors WHERE host = ?"
SET_CURSOR = """
INSERT INTO learner_cursors (host, number) VALUES (?, ?)
ON CONFLICT (host) DO UPDATE SET number = excluded.number
"""
ENDED = """
SELECT a.task, a.number, a.outcome, a.cpu_ms, a.peak_kb, t.lane, t.created_at, w.host, w.agent
FROM attempts a JOIN tasks t ON t.id = a.task JOIN workers w ON w.id = a.worker
WHERE a.task IN ({}) AND a.outcome IS NOT NULL AND w.batch IS NOT NULL
"""
SPENT = """
SELECT task, attempt, sum(input_tokens + output_tokens), sum(cost_micros),
    max(CASE WHEN outcome IN ('quota', 'overload') THEN 1 ELSE 0 END)
FROM sessions WHERE task IN ({}) AND task <> '' GROUP BY task, attempt
"""


def ended(session: Session, which: Sequence[tuple[str, int]]) -> list[EndedAttempt]:
    """Those of these attempts that have ended and that a worker of a run made."""
    wanted, attempts = set(which), []
    for part in slices(sorted({task for task, _ in which})):
        rows = session.rows(ENDED.format(marks(len(part))), pad(part))
        spent = {}
        if any(row[8] for row in rows):
            spent = {
                (row[0], row[1]): (
                    int(row[2] or 0),
                    None if row[3] is None else int(row[3]),
                    bool(row[4]),
                )
                for row in session.rows(SPENT.format(marks(len(part))), pad(part))
            }
        attempts += [
            EndedAttempt(
                task,
                number,
                outcome,
                cpu,
                peak,
                get_lane(session, lane).type,
                created,
                host,
                agent,
                *spent.get((task, number), (0, None, False)),
            )
            for task, number, outcome, cpu, peak, lane, created, host, agent in rows
            if (task, number) in wanted
        ]
    return attempts


def prior_of(hv: Context, task_type: str) -> dict[str, Any] | None:
    """The user's estimate for running a type of task in parallel."""
    return hv.store.read(_prior, task_type)


def _prior(session: Session, task_type: str) -> dict[str, Any] | None:
    return next((json.loads(row[0]) for row in session.rows(PRIOR, (task_type,))), None)


def priors(session: Session) -> dict[str, dict[str, Any]]:
    """The users' estimates by type of task."""
    return {task_type: json.loads(text) for task_type, text in session.rows(PRIORS)}


def set_prior(session: Session, task_type: str, prior: str) -> None:
    session.run(SET_PRIOR, (task_type, prior))


def records(hv: Context, host: str) -> dict[str, Record]:
    """The records of a host by kind of work. What another version wrote is left out."""
    readable = {}
    for kind, text in hv.store.read(_record_rows, host):
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            readable[kind] = record_from(json.loads(text))
    return readable


def _record_rows(session: Session, host: str) -> list[Row]:
    return session.rows(RECORDS, (host,))


def seen_up_to(hv: Context, host: str) -> int | None:
    """The number of the last event that the learner of a host has seen."""
    return hv.store.read(_cursor, host)


def _cursor(session: Session, host: str) -> int | None:
    return next((row[0] for row in session.rows(CURSOR, (host,))), None)


def save(session: Session, host: str, number: int, changed: dict[str, Record]) -> None:
    """Store the changed records together with the number of the last event seen."""
    session.run(SET_CURSOR, (host, number))
    rows = [(host, kind, json.dumps(record_data(record))) for kind, record in changed.items()]
    session.run_many(SET_RECORD, rows)
