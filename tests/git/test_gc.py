"""`gc` keeps as much of the history as the settings say."""

from __future__ import annotations

import pytest

import hypervisor
from hypervisor.queue import old_events
from hypervisor.queue.task import NewTask

DAY = 86_400_000
CONFIG = "[retention]\nevent_days = 10\nfinished_days = 30\n"


@pytest.fixture
def hv(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(old_events, "KEPT", 1)
    (tmp_path / ".hypervisor").mkdir(mode=0o700)
    (tmp_path / ".hypervisor" / "config.toml").write_text(CONFIG)
    with hypervisor.open(str(tmp_path / ".hypervisor"), relaxed=True) as hv:
        yield hv


def test_old_events_are_deleted(hv):
    now = hv.now()
    for days in (12, 11, 9, 0):
        hv.add([NewTask(f"{days} days old")], now=now - days * DAY)
    assert hv.gc(dry_run=True, now=now).events == 2 and len(hv.events()) == 4
    assert hv.gc(now=now).events == 2
    assert [event.seq for event in hv.events()] == [3, 4]
    assert hv.stats().total == 4


def test_finished_tasks_are_deleted(hv):
    now = hv.now()
    for days in (31, 29):
        [task] = hv.add([NewTask(f"{days} days old")], now=now - days * DAY).ids
        hv.cancel(task, now=now - days * DAY)
    assert hv.gc(dry_run=True, now=now).tasks == 1
    assert hv.gc(now=now).tasks == 1
    assert [task.title for task in hv.list_tasks()] == ["29 days old"]
