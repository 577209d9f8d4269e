"""What ended attempts took, as the learner needs it."""

from __future__ import annotations

from collections.abc import Sequence

from hypervisor.queue.history import EndedAttempt
from hypervisor.queue.sql.lanes import get_lane
from hypervisor.store.database import Session, marks, pad, slices

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
    """These attempts, as far as they have ended and a worker of ours ran them."""
    wanted, found = set(which), []
    for some in slices(sorted({task for task, _ in which})):
        rows = session.rows(ENDED.format(marks(len(some))), pad(some))
        spent = {}
        if any(row[8] for row in rows):
            spent = {
                (row[0], row[1]): (
                    int(row[2] or 0),
                    None if row[3] is None else int(row[3]),
                    bool(row[4]),
                )
                for row in session.rows(SPENT.format(marks(len(some))), pad(some))
            }
        found += [
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
    return found
