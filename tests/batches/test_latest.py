"""The latest batch, on both databases."""

from __future__ import annotations

from hypervisor.batches.sql import last_run
from tests.support.given import NOW

SPEC = {"cwd": "/", "command": ["true"]}


def test_the_latest_batch_was_created_or_run_last(ledger, open_ledger):
    assert ledger.read(last_run.latest) is None
    first = ledger.declare("first", SPEC, "me", NOW).id
    second = ledger.declare("second", SPEC, "me", NOW + 5).id
    assert ledger.read(last_run.latest) == (second, False)
    ledger.write(last_run.set_run_at, first, NOW + 5)
    assert open_ledger().read(last_run.latest) == (first, True)
    third = ledger.declare("third", SPEC, "me", NOW + 6).id
    assert ledger.read(last_run.latest) == (third, False)
    ledger.write(last_run.set_run_at, third, NOW + 7)
    assert ledger.read(last_run.latest) == (third, True)


def test_skipped_tasks_are_those_of_the_last_submission(ledger, open_ledger):
    batch = ledger.declare("b", SPEC, "me", NOW).id
    assert ledger.read(last_run.skipped, batch) == 0
    for tasks in (3, 2):
        ledger.write(last_run.set_skipped, batch, tasks)
    assert open_ledger().read(last_run.skipped, batch) == 2
