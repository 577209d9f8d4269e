"""Power cuts on a recorded disk: acknowledged changes are there, and nothing is half done.

The store commits without waiting for the disk and syncs the log before it acknowledges
(store/sqlite.py). Several processes work on a recorded disk; then the power is cut at many moments
of the record, and each resulting disk is opened and inspected.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import hypervisor
from hypervisor.selftest import sql
from hypervisor.selftest.crew import ForkServer
from hypervisor.selftest.invariants import check_invariants
from hypervisor.selftest.part import Figures, Setting, Skipped, Violation, ensure
from hypervisor.selftest.recorded_disk import Disk, read_log

PROCESSES = 3
TURNS = 12
CUTS = 100  # for each record

Log = list[tuple[Any, ...]]


def run(setting: Setting) -> Figures:
    if setting.kind != "sqlite":
        raise Skipped("PostgreSQL has its own log: see its settings fsync and full_page_writes")
    figures: Counter[str] = Counter()
    with closing(ForkServer()) as crew:
        while not figures["records"] or not setting.is_over:
            number = figures["records"]
            folder = setting.folder / f"record{number}"
            folder.mkdir()
            _, log = record(crew, folder, setting.seed + number, bug=setting.bug)
            survey = cut_often(log, folder / "cut", CUTS, random.Random(setting.seed + number))
            if survey.losses or survey.damage:
                raise Violation(f"after a power cut: {(survey.losses or survey.damage)[0]}")
            figures += Counter(
                {
                    "records": 1,
                    "operations": len(log),
                    "cuts": survey.cuts,
                    "acknowledged changes checked": survey.kinds["acknowledged"],
                }
            )
            shutil.rmtree(folder)
            setting.tell(f"{figures['cuts']} cuts")
    return dict(figures)


def record(
    crew: ForkServer,
    folder: Path,
    seed: int,
    *,
    shifts: int = 2,
    processes: int = PROCESSES,
    bug: str | None = None,
) -> tuple[Path, Log]:
    """A record of several processes at work; the store closes between shifts."""
    where, log = folder / "live" / "store.db", folder / "disk.log"
    for shift in range(shifts):
        workers = [
            crew.start(
                "recorded",
                str(where),
                str(log),
                f"w{shift}{n}",
                seed + 1000 * shift + n,
                TURNS,
                bug=bug,
            )
            for n in range(processes)
        ]
        codes = [child.wait() for child in workers]
        ensure(codes == [0] * processes, f"a worker failed: {codes}")
    return where, read_log(log)


class Survey:
    """What was found after the cuts."""

    def __init__(self) -> None:
        self.cuts = 0
        self.losses: list[str] = []
        self.damage: list[str] = []
        self.kinds: Counter[str] = Counter()


def cut_often(log: Log, folder: Path, cuts: int, dice: random.Random) -> Survey:
    """Cut the power at many moments and inspect each resulting disk."""
    survey = Survey()
    moments = sorted(dice.sample(range(len(log)), min(cuts, len(log))))
    disk, played = Disk(), 0
    for moment in moments:
        while played <= moment:
            disk.play(log[played])
            played += 1
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name, data in disk.cut(dice).items():
            (folder / name).write_bytes(data)
        survey.cuts += 1
        survey.kinds["acknowledged"] += len(disk.acknowledged)
        inspect(folder / "store.db", disk.acknowledged, moment, survey)
    return survey


def inspect(path: Path, acknowledged: list[Any], moment: int, survey: Survey) -> None:
    try:
        with hypervisor.open(path, relaxed=True) as hv:
            (integrity,) = hv.store.read(sql.rows, sql.INTEGRITY)
            ensure(integrity == [("ok",)], f"the file is damaged: {integrity[:1]}")
            check_invariants(hv)
            broken = [report.problem for report in hv.verify() if report.problem]
            ensure(not broken, f"a chain of receipts is broken: {broken[:1]}")
            there = facts(hv)
            lost = [fact for fact in acknowledged if fact not in there]
            if lost:
                survey.losses.append(f"cut {moment}: {len(lost)} changes lost, {lost[0]}")
            survey.kinds["beyond acknowledged"] += len(there) > len(acknowledged)
            ensure(hv.add([hypervisor.NewTask("the store works")]).ids, "nothing can be added")
    except Exception as problem:  # any error of a damaged store counts as damage
        survey.damage.append(f"cut {moment}: {problem!r}"[:300])


def facts(hv: hypervisor.Hypervisor) -> set[tuple[Any, ...]]:
    """Everything that could have been acknowledged, as the store has it."""
    tasks, attempts, receipts = hv.store.read(sql.rows, sql.TASKS, sql.ATTEMPTS, sql.RECEIPTS)
    there = {("added", row[0]) for row in tasks} | {("receipt", row[0]) for row in receipts}
    for task, number, nonce, outcome, _ in attempts:
        token = f"{task}.{number}.{nonce}"
        there |= {("claimed", token), (outcome, token)}
    return there
