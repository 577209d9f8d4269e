"""A power cut at any moment: acknowledged changes are there, and nothing is half done.

The store commits without waiting for the disk and syncs the log before it
acknowledges (store/sqlite.py). This is tested here on a recorded disk.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter

import pytest

import hypervisor
from tests.torture.disk import Disk, read_log
from tests.torture.lookout import check_invariants

PROCESSES = 3
TURNS = 12
CUTS = 400


@pytest.fixture
def worked(fork_server, tmp_path):
    """A recorded log of several processes at work, in two shifts; the store closes in between."""

    def work(sync=True, shifts=2, processes=PROCESSES):
        where, log = tmp_path / "live" / "store.db", tmp_path / "disk.log"
        for shift in range(shifts):
            crew = [
                fork_server.start(
                    "recorded", str(where), str(log), f"w{shift}{n}", 1000 * shift + n, TURNS, sync
                )
                for n in range(processes)
            ]
            assert [child.wait() for child in crew] == [0] * processes
        return where, read_log(log)

    return work


def test_no_acknowledged_change_is_lost(worked, tmp_path, long):
    where, log = worked()
    kinds = Counter(entry[0] for entry in log)
    assert kinds["ack"] > 100 and kinds["sync"] > 100, "the recorder missed something"
    _recording_is_complete(where, log)
    starts = _logs_started_over_in_a_pause(log)
    assert starts > 2, "the case that matters did not come up"
    found = survey(log, tmp_path / "cut", CUTS * (20 if long else 1), random.Random(1))
    print(f"{len(log)} operations {dict(kinds)}, {starts} starts, {found.cuts} cuts: {found.kinds}")
    assert not found.damage, found.damage[:3]
    assert not found.losses, found.losses[:3]
    assert found.kinds["acknowledged"] > 1_000


def test_without_the_sync_losses_are_found(worked, tmp_path):
    """The test can fail: leave the sync out, and acknowledged changes are lost."""
    _, log = worked(sync=False, shifts=1)
    found = survey(log, tmp_path / "cut", CUTS // 2, random.Random(2))
    assert found.losses
    assert not found.damage, "SQLite's own syncs still keep the file whole"


def test_on_a_lying_disk_damage_is_found(worked, tmp_path):
    """The test can fail: on a disk that syncs nothing, files are damaged and changes lost."""
    _, log = worked(shifts=3, processes=1)
    first = next(n for n, entry in enumerate(log) if entry[0] == "ack")
    lies = [entry for n, entry in enumerate(log) if entry[0] != "sync" or n < first]
    found = survey(lies, tmp_path / "cut", CUTS // 2, random.Random(3))
    assert found.losses and found.damage


def _recording_is_complete(where, log):
    """With nothing lost, the recorded disk holds exactly what the real one does."""
    disk = Disk()
    for entry in log:
        disk.play(entry)
    files = disk.everything()
    assert files == {"store.db": where.read_bytes()}


def _logs_started_over_in_a_pause(log):
    """How often others restarted the write-ahead log between a commit and its sync."""
    paused, starts = set(), 0
    for kind, what, *rest in log:
        if kind == "pause":
            paused.add(what)
        elif kind == "resume":
            paused.discard(what)
        elif kind == "write" and len(rest[1]) == 32:
            starts += bool(paused)
    return starts


class Survey:
    def __init__(self):
        self.cuts = 0
        self.losses = []
        self.damage = []
        self.kinds: Counter[str] = Counter()


def survey(log, folder, cuts, dice):
    """Cut the power at many moments and check each resulting disk."""
    found = Survey()
    moments = sorted(dice.sample(range(len(log)), min(cuts, len(log))))
    disk, played = Disk(), 0
    for moment in moments:
        while played <= moment:
            disk.play(log[played])
            played += 1
        files = disk.cut(dice)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name, data in files.items():
            (folder / name).write_bytes(data)
        found.cuts += 1
        found.kinds["acknowledged"] += len(disk.acknowledged)
        inspect(folder / "store.db", disk.acknowledged, moment, found)
    return found


def inspect(path, acknowledged, moment, found):
    try:
        with hypervisor.open(path, relaxed=True) as hv:
            assert hv.store.facts()["integrity"] == "ok"
            assert _integrity(hv) == [("ok",)]
            check_invariants(hv)
            assert all(report.problem is None for report in hv.verify())
            there = facts(hv)
            lost = [fact for fact in acknowledged if fact not in there]
            if lost:
                found.losses.append((moment, len(lost), lost[0]))
            found.kinds["beyond acknowledged"] += len(there) > len(acknowledged)
            assert hv.add([hypervisor.NewTask("the store goes on")]).ids
    except Exception as problem:  # any error of a damaged store counts as damage
        found.damage.append((moment, repr(problem)[:300]))


def facts(hv):
    """Everything that could have been acknowledged, as the store has it."""
    rows = hv.store.read(
        lambda s: [
            s.rows("SELECT id FROM tasks"),
            s.rows("SELECT task, number, nonce, outcome FROM attempts"),
            s.rows("SELECT hash FROM receipts"),
        ]
    )
    there = {("added", row[0]) for row in rows[0]} | {("receipt", row[0]) for row in rows[2]}
    for task, number, nonce, outcome in rows[1]:
        token = f"{task}.{number}.{nonce}"
        there |= {("claimed", token), (outcome, token)}
    return there


def _integrity(hv):
    return hv.store._connection.execute("PRAGMA integrity_check").fetchall()
