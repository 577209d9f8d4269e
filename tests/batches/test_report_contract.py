"""The queries of preflight and the report, on both databases."""

from __future__ import annotations

from hypervisor.core.ids import key_digest
from hypervisor.queue.lane import ClaimFilter
from hypervisor.queue.lease import AttemptResult, ClaimRequest, Usage, Worker, parse_token
from hypervisor.queue.task import NewTask

NOW = 1_800_000_000_000
WORKER = Worker("w-1", "worker-1", "here", "boot/1", 11, 100)


def batch_of(ledger, name, count, kind="run"):
    batch = ledger.declare(name, {"cwd": "/"}, "me", NOW)
    tasks = [NewTask(f"t{n}", key=f"k{n}", type=kind) for n in range(count)]
    return batch.id, ledger.add(tasks, name, "me", NOW).ids


def work(ledger, batch, count, took, output, event="complete"):
    request = ClaimRequest(WORKER, count, 60_000, ClaimFilter(batch=batch))
    leases = ledger.claim(request, NOW)
    usage = Usage(0, 5, 7, output)
    verdicts = [
        AttemptResult(parse_token(each.token), event, reason="x", usage=usage) for each in leases
    ]
    ledger.settle(verdicts, NOW + took)
    return [each.task.id for each in leases]


def test_states_by_the_digests_of_keys(ledger):
    batch, _ = batch_of(ledger, "b", 3)
    batch_of(ledger, "other", 5)
    work(ledger, batch, 1, 10, 10)
    digests = [key_digest(f"k{n}").hex() for n in range(5)]
    found = ledger.states_of_keys(batch, digests)
    assert found == dict(zip(digests, ("done", "active", "active"), strict=False))
    assert ledger.states_of_keys(batch, []) == {}
    many = [key_digest(str(n)).hex() for n in range(2_000)]
    assert ledger.states_of_keys(batch, [*many, digests[0]]) == {digests[0]: "done"}


def test_attempts_come_page_by_page_and_none_is_missed(ledger):
    batch, ids = batch_of(ledger, "b", 7)
    worked = work(ledger, batch, 3, 10, 10, "release")
    worked += work(ledger, batch, 7, 20, 10)[:4]
    batch_of(ledger, "other", 2)
    found, after = [], ""
    while True:
        after, lines = ledger.attempts_of_batch(batch, after, 2)
        if not after:
            break
        found += lines
    assert [each.task for each in found] == sorted([*ids, *ids[:3]])
    first = found[0]
    assert (first.name, first.worker, first.number) == ("worker-1", "w-1", 1)
    assert (first.claimed_at, first.ended_at, first.outcome) == (NOW, NOW + 10, "released")
    assert (first.cpu_ms, first.peak_kb) == (5, 7)


def test_pages_of_tasks_without_attempts_do_not_end_it(ledger):
    batch, ids = batch_of(ledger, "b", 5)
    after, lines = ledger.attempts_of_batch(batch, "", 2)
    assert (after, lines) == (ids[1], [])


def test_experience_of_the_batch_else_of_its_type(ledger):
    assert ledger.experience("run", None) == (0, None, None)
    batch, _ = batch_of(ledger, "b", 4)
    work(ledger, batch, 2, 1_000, 100)
    work(ledger, batch, 1, 4_000, 400)
    assert ledger.experience("run", batch) == (3, 2_000, 200)
    fresh, _ = batch_of(ledger, "fresh", 1)
    assert ledger.experience("run", fresh) == ledger.experience("run", None) == (3, 2_000, 200)
    assert ledger.experience("else", fresh) == (0, None, None)


def test_the_last_receipts_in_order_and_how_many_there_are(ledger):
    batch, ids = batch_of(ledger, "b", 1)
    assert ledger.last_receipts(batch, 5) == (0, [])
    ledger.append(ids[0], "me", [f"line {n}" for n in range(7)], NOW)
    count, found = ledger.last_receipts(batch, 3)
    assert count == 7 and [each.text for each in found] == ["line 4", "line 5", "line 6"]
