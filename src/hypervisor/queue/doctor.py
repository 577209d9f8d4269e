"""Checking the installation and the store, with what to do about each finding."""

import os
import shutil
import sys
from typing import NamedTuple

from hypervisor.core.text import pluralize
from hypervisor.queue.context import Context
from hypervisor.queue.rescue import sweep
from hypervisor.queue.sql import receipts

LOW_DISK = 500_000_000


class Check(NamedTuple):
    """One finding; `fix` says what to do when it is not ok."""

    name: str
    ok: bool
    found: str
    fix: str = ""


def doctor(hv: Context) -> tuple[Check, ...]:
    """Check store, versions, permissions, disk, receipts and stuck claims."""
    facts = hv.store.facts()
    checks = [
        Check("python", sys.version_info >= (3, 11), sys.version.split()[0], "use 3.11 or newer"),
        Check("store", True, f"{facts['where']} (schema {facts['schema']})"),
        Check("database", True, f"{facts['database']}, {facts['durability']}"),
        Check(
            "integrity",
            facts["integrity"] == "ok",
            str(facts["integrity"]),
            "stop all workers and restore a copy of the store",
        ),
    ]
    if os.path.exists(facts["where"]):
        checks += _files(facts["where"])
    return (*checks, _receipts(hv), _claims(hv))


def _files(path: str) -> list[Check]:
    folder = os.path.dirname(os.path.abspath(path))
    shut = any(not os.stat(each).st_mode & 0o077 for each in (folder, path))
    free = shutil.disk_usage(folder).free
    return [
        Check(
            "permissions",
            shut,
            "only you can look in" if shut else "others can look in",
            f"chmod 600 '{path}'",
        ),
        Check("writable", os.access(path, os.W_OK), path, "check the owner of the file"),
        Check("disk", free > LOW_DISK, f"{free / 1e9:.1f} GB free", "free some space"),
    ]


def _receipts(hv: Context) -> Check:
    reports = hv.store.read(receipts.check, None)
    broken = [f"{report.chain}: {report.problem}" for report in reports if report.problem]
    lines = sum(report.receipts for report in reports)
    all_hold = f"{pluralize(lines, 'receipt')} in {pluralize(len(reports), 'chain')}: all hold"
    return Check(
        "receipts", not broken, "; ".join(broken) or all_hold, "`hv receipt verify` names them"
    )


def _claims(hv: Context) -> Check:
    overdue = sweep(hv).overdue
    found = f"{len(overdue)} past their lease with a living worker: " + ", ".join(overdue[:5])
    return Check(
        "claims",
        not overdue,
        found if overdue else "none is stuck",
        "`hv release --force TASK` takes one back",
    )
