"""What must be true of every row of the tables that PostgreSQL does not check at each write.

It reads and plans a table's CHECK constraints anew for every statement, which was a fifth of its
work in a busy queue (docs/decisions/0028). SQLite, on which the same statements run, checks
them still; here `hv doctor` does, and the tests do at the end of each.
"""

from __future__ import annotations

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


# Every row is looked at: our statements are told to go by index otherwise.
ROW_BY_ROW = "SELECT set_config('enable_seqscan', 'on', true)"


def integrity(session: Session) -> str:
    """`ok`, or how many rows contradict themselves."""
    session.run(ROW_BY_ROW)
    broken = []
    for table, checks in CHECKS.items():
        counts = ", ".join(f"count(*) FILTER (WHERE NOT ({check}))" for check in checks)
        [found] = session.rows(f"SELECT {counts} FROM {table}")
        broken += [
            f"{count} of {table} against {check}"
            for count, check in zip(found, checks, strict=True)
            if count
        ]
    return "; ".join(broken) or "ok"
