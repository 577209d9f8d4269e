"""Invariants that PostgreSQL does not check at each write.

It reads and plans the CHECK constraints of a table again for every statement, which took a fifth of
its time in a busy queue (docs/decisions/0028). SQLite, which runs the same statements, still has
them; on PostgreSQL, `hv doctor` checks them, and every test does at its end.
"""

from __future__ import annotations

from hypervisor.core.text import pluralize
from hypervisor.store.database import Session
from hypervisor.store.dialect import STATE_IS_ONE

CHECKS = {
    "tasks": (
        STATE_IS_ONE,
        "attempt >= 0",
        "open_deps >= 0",
        "(state = 'in_progress') = (deadline IS NOT NULL)",
        "state <> 'active' OR (open_deps = 0 AND start_at IS NULL)",
        "state <> 'blocked' OR reason IS NOT NULL",
    ),
    "attempts": ("number > 0", "(ended_at IS NULL) = (outcome IS NULL)"),
}


# Sequential scans are off for all other statements.
ALLOW_SEQUENTIAL_SCANS = "SELECT set_config('enable_seqscan', 'on', true)"


def integrity(session: Session) -> str:
    """`ok`, or how many rows violate which invariant."""
    session.run(ALLOW_SEQUENTIAL_SCANS)
    broken = []
    for table, checks in CHECKS.items():
        counts = ", ".join(f"count(*) FILTER (WHERE NOT ({check}))" for check in checks)
        [violations] = session.rows(f"SELECT {counts} FROM {table}")
        broken += [
            f"{pluralize(count, 'row')} of {table} violating {check}"
            for count, check in zip(violations, checks, strict=True)
            if count
        ]
    return "; ".join(broken) or "ok"
