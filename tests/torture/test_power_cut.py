"""A power cut at any moment: acknowledged changes are there, and nothing is half done.

The store commits without waiting for the disk and syncs the log before it
acknowledges (store/sqlite.py). This is tested here on a recorded disk.
"""

from __future__ import annotations

import random
from collections import Counter
from functools import partial

import pytest

from hypervisor.selftest.power_cuts import cut_often, record
from hypervisor.selftest.recorded_disk import Disk

CUTS = 400


@pytest.fixture
def worked(fork_server, tmp_path):
    """A record of several processes at work, in two shifts; the store closes in between."""
    return partial(record, fork_server, tmp_path, 0)


def test_no_acknowledged_change_is_lost(worked, tmp_path, long):
    where, log = worked()
    kinds = Counter(entry[0] for entry in log)
    assert kinds["ack"] > 100 and kinds["sync"] > 100, "the recorder missed something"
    _recording_is_complete(where, log)
    starts = _logs_started_over_in_a_pause(log)
    assert starts > 2, "the case that matters did not come up"
    found = cut_often(log, tmp_path / "cut", CUTS * (20 if long else 1), random.Random(1))
    print(f"{len(log)} operations {dict(kinds)}, {starts} starts, {found.cuts} cuts: {found.kinds}")
    assert not found.damage, found.damage[:3]
    assert not found.losses, found.losses[:3]
    assert found.kinds["acknowledged"] > 1_000


def test_without_the_sync_losses_are_found(worked, tmp_path):
    """The test can fail: leave the sync out, and acknowledged changes are lost."""
    _, log = worked(shifts=1, bug="no-sync")
    found = cut_often(log, tmp_path / "cut", CUTS // 2, random.Random(2))
    assert found.losses
    assert not found.damage, "SQLite's own syncs still keep the file whole"


def test_on_a_lying_disk_damage_is_found(worked, tmp_path):
    """The test can fail: on a disk that syncs nothing, files are damaged and changes lost."""
    _, log = worked(shifts=3, processes=1)
    first = next(n for n, entry in enumerate(log) if entry[0] == "ack")
    lies = [entry for n, entry in enumerate(log) if entry[0] != "sync" or n < first]
    found = cut_often(lies, tmp_path / "cut", CUTS // 2, random.Random(3))
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
