"""Checks of the installation and the store, with a fix for each problem."""

import os
import shutil
import sys

from hypervisor.core.records import NamedTuple
from hypervisor.core.text import pluralize
from hypervisor.queue.context import Context
from hypervisor.queue.rescue import sweep
from hypervisor.queue.sql import counts, receipts

LOW_DISK = 500_000_000


class Check(NamedTuple):
    """The result of a check; `fix` says what to do if it is not ok."""

    name: str
    ok: bool
    found: str
    fix: str = ""


def check_store(hv: Context) -> tuple[Check, ...]:
    """Versions, the store and its file, receipts, counts, claims."""
    facts = hv.store.facts()
    checks = [
        Check("python", sys.version_info >= (3, 11), sys.version.split()[0], "use 3.11 or newer"),
        Check("store", True, f"{facts['where']} (schema {facts['schema']})"),
        Check("database", True, f"{facts['database']}, {facts['durability']}"),
        Check(
            "integrity",
            facts["integrity"] == "ok",
            str(facts["integrity"]),
            "stop all workers and restore a backup of the store",
        ),
    ]
    checks += [Check(*finding) for finding in facts.get("server", ())]
    if os.path.exists(facts["where"]):
        checks += _files(facts["where"])
    return (*checks, _receipts(hv), _counts(hv), _claims(hv))


def _files(path: str) -> list[Check]:
    folder = os.path.dirname(os.path.abspath(path))
    private = any(not os.stat(name).st_mode & 0o077 for name in (folder, path))
    free = shutil.disk_usage(folder).free
    return [
        Check(
            "permissions",
            private,
            "only you can read it" if private else "other users can read it",
            f"chmod 600 '{path}'",
        ),
        Check("writable", os.access(path, os.W_OK), path, "check the owner of the file"),
        Check("disk", free > LOW_DISK, f"{free / 1e9:.1f} GB free", "free some space"),
    ]


def _receipts(hv: Context) -> Check:
    reports = hv.store.read(receipts.check, None)
    broken = [f"{report.chain}: {report.problem}" for report in reports if report.problem]
    lines = sum(report.receipts for report in reports)
    all_valid = f"{pluralize(lines, 'receipt')} in {pluralize(len(reports), 'chain')}: all valid"
    return Check(
        "receipts", not broken, "; ".join(broken) or all_valid, "`hv receipt verify` names them"
    )


def _counts(hv: Context) -> Check:
    """Corrects them, too: a process of an older version may have changed tasks without counting."""
    wrong = hv.store.read(counts.corrections)
    if wrong:
        hv.store.write(counts.change, wrong)
    corrected = f"{pluralize(len(wrong), 'count')} of tasks corrected"
    return Check("counts", True, corrected if wrong else "match the tasks")


def _claims(hv: Context) -> Check:
    overdue = sweep(hv).overdue
    stuck = f"{len(overdue)} past their lease, worker still alive: " + ", ".join(overdue[:5])
    return Check(
        "claims",
        not overdue,
        stuck if overdue else "none stuck",
        "`hv release --force TASK` ends the claim",
    )
