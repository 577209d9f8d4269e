"""The files of items as attempts left them, on both databases."""

from __future__ import annotations

import pytest

from hypervisor.queue.lease import AttemptResult, ClaimRequest, parse_token
from hypervisor.queue.sql import item_files
from hypervisor.queue.sql.item_files import DoneFile
from hypervisor.queue.task import NewTask
from tests.support.given import ANN, LEASE, NOW

STATE = (7, 1_700_000_000_123_456_789, "ab" * 16)


def finish(ledger, count=1, now=NOW):
    leases = ledger.claim(ClaimRequest(ANN, count, LEASE), now)
    tokens = [parse_token(lease.token) for lease in leases]
    ledger.settle([AttemptResult(token, "complete") for token in tokens], now)
    return [(token.task, token.attempt) for token in tokens]


def save(ledger, *rows):
    ledger._db.write_unsynced(item_files.save, rows)


def read(ledger, query, *args):
    return ledger._db.read(query, *args)


def test_only_the_file_of_the_last_attempt_counts(ledger):
    ledger.add([NewTask("a", key="a"), NewTask("b", key="b")], "x", "me", NOW)
    (a, first), (b, _) = finish(ledger, 2)
    save(ledger, (a, first, *STATE))
    assert read(ledger, item_files.done_files, [a, b]) == {
        a: DoneFile(1, NOW, STATE),
        b: DoneFile(1, NOW, None),
    }
    ledger.reopen(a, "again", "me", NOW + 1)
    assert read(ledger, item_files.done_files, [a]) == {}
    assert finish(ledger, 1, NOW + 2) == [(a, 2)]
    assert read(ledger, item_files.done_files, [a]) == {a: DoneFile(2, NOW + 2, None)}
    save(ledger, (a, 2, 8, 0, ""))
    assert read(ledger, item_files.done_files, [a])[a].state == (8, 0, "")


def test_later_stages_of_the_same_item(ledger):
    (first,) = ledger.add([NewTask("a", key="a")], "one", "me", NOW).ids
    (second,) = ledger.add([NewTask("a", key="a", after=(first,))], "two", "me", NOW).ids
    (third,) = ledger.add([NewTask("a", key="a", after=(second,))], "three", "me", NOW).ids
    (other,) = ledger.add([NewTask("z", key="z", after=(first,))], "one", "me", NOW).ids
    while done := finish(ledger, 10):
        save(ledger, *((task, attempt, len(task), 1, task) for task, attempt in done))
    found = read(ledger, item_files.files_of_stages, {first, second})
    assert {task: {row[2] for row in rows} for task, rows in found.items()} == {
        first: {first, second, third},
        second: {second, third},
    }
    every = [first, second, third, other]
    assert read(ledger, item_files.behind, every) == set()
    ledger.reopen(first, "", "me", NOW + 1)
    assert read(ledger, item_files.behind, every) == {second}
    ledger.reopen(second, "", "me", NOW + 1)
    assert read(ledger, item_files.behind, every) == {second, third}


@pytest.mark.parametrize("size", [0, 2**40])
def test_large_figures(ledger, size):
    ledger.add([NewTask("a")], None, "me", NOW)
    ((task, attempt),) = finish(ledger)
    save(ledger, (task, attempt, size, 2**62, ""))
    assert read(ledger, item_files.done_files, [task])[task].state == (size, 2**62, "")
