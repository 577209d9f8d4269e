"""Lanes, entries and verdicts in the ledger, on both databases."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from hypervisor.core.errors import WrongState
from hypervisor.git import sql
from hypervisor.git.destination import destination_of
from hypervisor.git.hub import Hub
from hypervisor.git.verify import Verdict
from hypervisor.queue.context import Context
from hypervisor.queue.lane import ClaimFilter
from hypervisor.queue.lease import AttemptResult, ClaimRequest, Worker, parse_token
from hypervisor.queue.sql import merging
from hypervisor.queue.task import NewTask
from hypervisor.runs import sql as runs_sql
from hypervisor.runs.spec import spec_from
from hypervisor.selftest.repositories import Repo
from tests.git.support import repository_at

NOW = 1_800_000_000_000
ANN = Worker("w-ann", "ann", "here", "boot1", 101, 7)
SPEC = {"cwd": "/", "command": ["true"], "workspace": "clone", "git_merge": "branch"}


@pytest.fixture
def batch(ledger):
    batch = ledger.declare("b", SPEC, "me", NOW).id
    ledger.write(sql.add_lane, "lane", "/repo", "here", "branch", target="hv/b")
    return batch


def submit(ledger, batch):
    """Complete the next task; it is queued in the lane."""
    [lease] = ledger.claim(ClaimRequest(ANN, 1, 60_000, ClaimFilter(batch=batch)), NOW)
    ledger.settle([AttemptResult(parse_token(lease.token), "complete")], NOW)
    [made] = [each for each in ledger.read(merging.submitted) if each.task == lease.task.id]
    ledger.write(sql.add_entry, made, "lane", "head", "base")
    return ledger.read(sql.entry, made.task, made.attempt)


def take(ledger, host="here", now=NOW):
    return ledger.write(sql.take_lane, "lane", f"m@{host}", host, now)


def test_a_lane_belongs_to_its_host(ledger, batch):
    first = take(ledger)
    assert first is not None and take(ledger, "there") is None
    second = take(ledger)
    assert second is not None and second.fence == first.fence + 1


def test_two_hosts_with_the_same_path_have_lanes_of_their_own(ledger, batch, tmp_path):
    repo = Repo(tmp_path / "project")
    repo.commit({"f": "1\n"})
    repository, spec = repository_at(repo.folder), spec_from(SPEC)
    hub = Hub(str(tmp_path / "hub.git"))
    lanes = {
        host: destination_of(_on(ledger, host), hub, repository, spec, batch).lane
        for host in ("here", "there")
    }
    assert lanes["here"] != lanes["there"]
    for host, lane in lanes.items():
        ledger.write(sql.add_lane, lane, str(repo.folder), host, "branch", target="hv/b")
    for host, lane in lanes.items():
        other = lanes["there" if host == "here" else "here"]
        assert ledger.write(sql.take_lane, lane, "m", host, NOW)
        assert ledger.write(sql.take_lane, other, "m", host, NOW) is None


def _on(ledger, host):
    probe = SimpleNamespace(host=lambda: host)
    return cast(Context, SimpleNamespace(store=ledger, probe=probe))


def test_what_begins_to_land_cannot_be_cancelled_and_what_is_cancelled_cannot_land(ledger, batch):
    ledger.add([NewTask(name) for name in ("one", "two")], "b", "me", NOW)
    rows = [submit(ledger, batch) for _ in range(2)]
    held = take(ledger)
    tasks = [row.task for row in rows]
    assert ledger.write(sql.begin_landing, held, rows) == tasks
    with pytest.raises(WrongState, match="landing at this moment"):
        ledger.cancel(tasks[0], "", "me", NOW)
    assert ledger.task(tasks[0]).state == "merging"
    ledger.write(sql.end_landing, held, rows)  # the target had moved
    ledger.cancel(tasks[0], "", "me", NOW)
    assert ledger.read(sql.still_wanted, held, rows) == tasks[1:]
    assert ledger.write(sql.begin_landing, held, rows) == tasks[1:]  # so nothing has begun
    ledger.cancel(tasks[1], "", "me", NOW)


def test_a_merger_that_lost_its_lane_cannot_begin(ledger, batch):
    ledger.add([NewTask("one")], "b", "me", NOW)
    rows = [submit(ledger, batch)]
    old, _ = take(ledger), take(ledger)
    assert ledger.write(sql.begin_landing, old, rows) is None
    assert ledger.read(sql.still_wanted, old, rows) is None
    ledger.cancel(rows[0].task, "", "me", NOW)


def test_where_an_attempt_landed_is_kept_with_its_report(ledger, batch):
    ledger.add([NewTask("one")], "b", "me", NOW)
    row = submit(ledger, batch)
    facts = {"commit": "c0ffee", "target": "branch hv/b", "verified": True}
    assert ledger.write(sql.landed, take(ledger), row, facts, now=NOW)
    landing = ledger.read(merging.landing, row.task, 1)
    assert (landing.commit, landing.target, landing.verified) == ("c0ffee", "branch hv/b", True)
    [report] = ledger.read(runs_sql.report, batch, "", 10, NOW)
    assert (report.commit, report.target) == ("c0ffee", "branch hv/b")


def test_a_merger_that_lost_its_lane_changes_nothing(ledger, batch):
    ledger.add([NewTask("task")], "b", "me", NOW)
    row = submit(ledger, batch)
    old, new = take(ledger), take(ledger)
    assert not ledger.write(sql.landed, old, row, {"commit": "c"}, now=NOW)
    assert not ledger.write(sql.returned, old, row, "conflict", "tip", now=NOW)
    assert ledger.task(row.task).state == "merging"
    assert ledger.write(
        sql.landed, new, row, {"commit": "c", "target": "hv/b", "verified": True}, now=NOW
    )
    assert ledger.task(row.task).state == "done"
    assert ledger.read(sql.entry, row.task, 1).landed == "c"
    assert ledger.read(sql.queued) == []


def test_work_comes_back_twice_and_then_a_person_looks(ledger, batch):
    [task] = ledger.add([NewTask("task")], "b", "me", NOW).ids
    for expected in ("active", "active", "review"):
        row = submit(ledger, batch)
        assert [each.task for each in ledger.read(sql.queued)] == [task]
        assert ledger.write(sql.returned, take(ledger), row, "conflict", "tip", now=NOW)
        assert ledger.task(task).state == expected
    last = ledger.read(sql.last_entry, task, 3)
    assert (last.round, last.tip) == (1, "tip")
    assert ledger.write(merging.approve, task, "", "me", now=NOW) == "merging"


def test_a_paused_lane_is_not_tried_before_its_time(ledger, batch):
    held = take(ledger)
    assert ledger.write(sql.pause_lane, held, "red", NOW + 500)
    assert not ledger.write(sql.pause_lane, held, "red", NOW + 700)
    assert take(ledger, now=NOW + 600) is None
    again = take(ledger, now=NOW + 700)
    ledger.write(sql.resume_lane, again)
    assert [each.paused for each in ledger.read(sql.merge_lanes)] == [""]


def test_workspaces_and_verdicts_are_kept(ledger, batch):
    row = sql.WorkspaceRow("t", 1, "here", "/repo", "/work/t", False)
    ledger.write(sql.save_workspace, row, NOW)
    ledger.write(sql.close_workspace, "t", 1)
    assert ledger.read(sql.workspace, "t") == row._replace(closed=True)
    ledger.write(sql.save_workspace, row._replace(attempt=2), NOW)
    ledger.write(sql.close_workspace, "t", 1)
    late = row._replace(host="elsewhere")
    assert not ledger.write(sql.save_workspace, late, NOW)  # of an attempt that lost its claim
    assert ledger.read(sql.workspace, "t") == row._replace(attempt=2)
    assert ledger.read(sql.open_workspaces, "here") == [row._replace(attempt=2)]
    assert ledger.read(sql.open_workspaces, "elsewhere") == []
    cache = sql.StoredVerdicts(ledger)
    red = Verdict(False, 1, "/log", 1.5, "make", "make: exited with 1", 2)
    assert cache.get("tree", "d") is None
    cache.put("tree", "d", red)
    assert cache.get("tree", "d") == red
    cache.put("tree", "d", red._replace(passed=True, runs=3))
    assert cache.get("tree", "d") == red._replace(passed=True, runs=3)


def test_verdicts_are_dropped_only_as_they_were_seen(ledger):
    cache = sql.StoredVerdicts(ledger)
    cache.put("tree", "digest", Verdict(True, output_path="/a.log"))
    cache.put("other", "digest", Verdict(True, output_path="/b.log"))
    [(tree, digest, path)] = [
        each for each in ledger.read(sql.verdict_outputs) if each[0] == "tree"
    ]
    ledger.write(sql.drop_verdicts, [(tree, digest, path), ("other", "digest", "/older.log")])
    assert [each[0] for each in ledger.read(sql.verdict_outputs)] == ["other"]


def test_the_batches_of_a_lane(ledger, batch):
    assert ledger.read(sql.batches_of_lanes) == {}
    ledger.add([NewTask("a"), NewTask("b")], "b", "me", NOW)
    submit(ledger, batch)
    submit(ledger, batch)
    assert ledger.read(sql.batches_of_lanes) == {"lane": {batch}}
