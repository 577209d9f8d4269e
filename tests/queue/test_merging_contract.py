"""Batches that merge: a completed task is done only when it is merged."""

from __future__ import annotations

import pytest

from hypervisor.queue.lane import ClaimFilter
from hypervisor.queue.lease import AttemptResult, ClaimRequest, Worker, parse_token
from hypervisor.queue.sql import insert, lanes, merging
from hypervisor.queue.task import NewTask

NOW = 1_800_000_000_000
ANN = Worker("w-ann", "ann", "here", "boot1", 101, 1)


@pytest.fixture
def batch(ledger):
    batch = ledger.write(insert.get_or_create_batch, "merged", NOW)
    assert ledger.write(lanes.set_merges, batch.id, True)
    return batch.id


def add(ledger, *titles, batch="merged", **more):
    return ledger.add([NewTask(title, **more) for title in titles], batch, "me", NOW).ids


def request(batch):
    return ClaimRequest(ANN, 1, 60_000, ClaimFilter(batch=batch))


def claim(ledger, batch):
    [lease] = ledger.claim(request(batch), NOW)
    return parse_token(lease.token)


def states(ledger, *tasks):
    return [ledger.task(task).state for task in tasks]


def test_a_completed_task_is_merged_no_matter_who_completes_it(ledger, batch):
    first, second = add(ledger, "first", "second")
    token = claim(ledger, batch)
    settled, leases = ledger.settle_and_claim(
        [AttemptResult(token, "complete", {"n": 1})], request(batch), NOW
    )
    assert settled[0].state == "merging" and not settled[0].repeated
    assert [lease.task.id for lease in leases] == [second]
    [other] = ledger.settle([AttemptResult(parse_token(leases[0].token), "complete")], NOW + 1)
    assert other.state == "merging"
    assert states(ledger, first, second) == ["merging", "merging"]
    assert ledger.tasks([first])[0].result == {"n": 1}
    assert ledger.read(merging.submitted) == [
        (first, batch, 1, NOW),
        (second, batch, 1, NOW + 1),
    ]


def test_the_same_token_gets_the_first_answer_whatever_happened_since(ledger, batch):
    [task] = add(ledger, "task")
    token = claim(ledger, batch)
    first = ledger.settle([AttemptResult(token, "complete")], NOW)[0]
    data = {"commit": "c", "target": "hv/b", "verified": True}
    assert ledger.write(merging.merged, task, 1, data, "me", now=NOW) == "done"
    again = ledger.settle([AttemptResult(token, "complete")], NOW)[0]
    assert again == first._replace(repeated=True) and again.state == "merging"
    assert ledger.settle([AttemptResult(token, "fail", reason="x")], NOW)[0].lost
    assert states(ledger, task) == ["done"]


def test_what_depends_on_it_waits_until_it_is_merged(ledger, batch):
    [task] = add(ledger, "task")
    [later] = add(ledger, "later", after=(task,))
    ledger.settle([AttemptResult(claim(ledger, batch), "complete")], NOW)
    assert states(ledger, task, later) == ["merging", "waiting"]
    assert ledger.write(merging.rework, task, 1, "conflict", "me", now=NOW) == "active"
    assert states(ledger, later) == ["waiting"]
    ledger.settle([AttemptResult(claim(ledger, batch), "complete")], NOW)
    assert ledger.write(merging.merged, task, 2, {}, "me", now=NOW) == "done"
    assert states(ledger, task, later) == ["done", "active"]


def test_a_late_merger_changes_nothing(ledger, batch):
    [task] = add(ledger, "task")
    ledger.settle([AttemptResult(claim(ledger, batch), "complete")], NOW)
    ledger.cancel(task, "no need", "me", NOW)
    for step in (merging.merged, merging.rework, merging.to_review):
        assert ledger.write(step, task, 1, "text", "me", now=NOW) is None
    assert states(ledger, task) == ["cancelled"]
    assert ledger.read(merging.submitted) == []


def test_whether_a_batch_merges_is_decided_before_it_has_tasks(ledger, batch):
    [other] = add(ledger, "task", batch="plain")
    add(ledger, "task")
    plain = ledger.batch("plain").id
    assert not ledger.write(lanes.set_merges, plain, True)
    assert not ledger.write(lanes.set_merges, batch, False)
    assert ledger.write(lanes.set_merges, batch, True)
    ledger.settle([AttemptResult(claim(ledger, plain), "complete")], NOW)
    assert states(ledger, other) == ["done"]


def test_other_batches_keep_their_fast_path(ledger, batch, monkeypatch):
    add(ledger, "task")
    add(ledger, "one", "two", batch="plain")
    plain = ledger.batch("plain").id
    taken: list[bool] = []
    really_run = ledger._db.run

    def watched(path):
        row = really_run(path)
        taken.append(row is not None)
        return row

    monkeypatch.setattr(ledger._db, "run", watched)
    token = claim(ledger, plain)
    ledger.settle_and_claim([AttemptResult(token, "complete")], request(plain), NOW)
    assert taken == [True]
    token = claim(ledger, batch)
    ledger.settle_and_claim([AttemptResult(token, "complete")], request(batch), NOW)
    assert taken == [True]


def test_that_an_attempt_changed_nothing_never_hides_what_has_landed(ledger, batch):
    [task] = add(ledger, "one")

    def kept(attempt):
        return ledger.read(merging.landing, task, attempt)

    ledger.write(merging.changed_nothing, task, 2, now=NOW)
    assert kept(1) is None and kept(2) == merging.Landing("", "", False, NOW)
    ledger.write(merging.changed_nothing, task, 1, now=NOW + 1)  # a late worker
    assert kept(1) is None and kept(2) is not None
    landed = (task, 2, "c0ffee", "hv/b", 1, NOW + 2)
    ledger.write(lambda session: session.run(merging.KEEP_LANDING, landed))
    ledger.write(merging.changed_nothing, task, 2, now=NOW + 3)
    assert kept(2) == merging.Landing("c0ffee", "hv/b", True, NOW + 2)
    ledger.write(merging.changed_nothing, task, 3, now=NOW + 4)
    assert kept(3) == merging.Landing("", "", False, NOW + 4)
