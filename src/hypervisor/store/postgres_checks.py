"""What must be true of every row of the tables that PostgreSQL does not check at each write.

It reads and plans a table's CHECK constraints anew for every statement, which was a fifth of its
work in a busy queue (docs/decisions/0028). SQLite, on which the same statements run, checks
them still; here `hv doctor` does.
"""

from __future__ import annotations

from hypervisor.domain import lifecycle
from hypervisor.store.session import Session

CHECKS = {
    "tasks": (
        f"state IN ({', '.join(repr(state) for state in lifecycle.STATES)})",
        "attempt >= 0",
        "open_deps >= 0",
        "(state = 'in_progress') = (deadline IS NOT NULL)",
        "state <> 'active' OR (open_deps = 0 AND start_at IS NULL)",
        "state <> 'blocked' OR reason IS NOT NULL",
    ),
    "attempts": ("number > 0", "(ended_at IS NULL) = (outcome IS NULL)"),
}


def integrity(session: Session) -> str:
    """`ok`, or how many rows contradict themselves."""
    broken = [
        f"{count} of {table} against {check}"
        for table, checks in CHECKS.items()
        for check in checks
        for (count,) in session.rows(f"SELECT count(*) FROM {table} WHERE NOT ({check})")
        if count
    ]
    return "; ".join(broken) or "ok"
