"""The merge queue and the ledger: what was cancelled, or is another merger's, does not land."""

from __future__ import annotations

import threading

from hypervisor.git.decisions import Verifying
from hypervisor.git.lane_refs import LaneRefs
from hypervisor.git.merge_queue import MergeQueue
from tests.git.queue_field import BRANCH, landed
from tests.git.support import wait_until


class Ledger:
    """What the ledger says about entries: all are wanted but those cancelled meanwhile."""

    def __init__(self, lost=False):
        self.cancelled: set[str] = set()
        self.lost, self.steps = lost, list[str]()
        self.at_landing = ""  # is cancelled at the last moment

    def wanted(self, entries):
        return None if self.lost else [name for name in entries if name not in self.cancelled]

    def begin(self, entries):
        self.cancelled.add(self.at_landing)
        wanted = self.wanted(entries)
        self.steps.append("begin" if wanted == entries else "refused")
        return wanted

    def end(self):
        self.steps.append("end")


def test_nothing_lands_when_the_lane_is_lost(field):
    decisions = field.run(field.entries(2), field.lane(gate=Ledger(lost=True)))
    assert [type(decision) for decision in decisions] == [Verifying]
    assert field.repo.tip(BRANCH) is None


def cancel_once(ledger, started):
    assert wait_until(started.exists, 60)
    ledger.cancelled.add("t2")


def test_an_entry_cancelled_while_it_is_verified_does_not_land(field):
    """The verification ends as soon as it is not needed, and the others are verified without it."""
    ledger = Ledger()
    started = field.folder / "started"
    commands = [f"test -e '{started}' || {{ touch '{started}'; sleep 600; }}", field.check]
    steps = MergeQueue(field.lane(commands=commands, gate=ledger)).run(field.entries(3))
    assert isinstance(next(steps), Verifying)
    cancel = threading.Thread(target=cancel_once, args=(ledger, started))
    cancel.start()
    decisions = list(steps)
    cancel.join()
    assert landed(decisions) == ["t1", "t3"]
    assert field.repo.read(BRANCH, "good-2") is None
    assert field.passed(field.repo.tip(BRANCH))


def test_an_entry_cancelled_right_before_it_lands_does_not_land(field):
    ledger = Ledger()
    ledger.at_landing = "t1"
    decisions = field.run(field.entries(2), field.lane(gate=ledger))
    assert landed(decisions) == ["t2"]
    assert field.repo.read(BRANCH, "good-1") is None
    assert ledger.steps == ["end", "refused", "end", "begin"]
    assert LaneRefs(field.hub, "lane").intent() is None
