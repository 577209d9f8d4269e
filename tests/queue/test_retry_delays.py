"""The first delay of a batch's retries, on both databases."""

import pytest

from hypervisor.core.errors import InvalidInput
from hypervisor.queue.sql import insert, retry_delays
from hypervisor.queue.task import NewTask
from tests.support.databases import dump
from tests.support.given import NOW


def delay_of(ledger, batch):
    return ledger.read(retry_delays.get, batch)


def test_a_batch_keeps_its_delay_until_another_is_set(ledger):
    for delay in (5_000, None, 7_000):
        ledger.write(insert.add, [NewTask("a")], "b", "me", NOW, retry_delay=delay)
    ledger.write(insert.add, [NewTask("a")], "other", "me", NOW)
    assert delay_of(ledger, ledger.batch("b").id) == 7_000
    assert delay_of(ledger, ledger.batch("other").id) == delay_of(ledger, "") == 10_000


def test_the_spec_of_a_batch_that_is_run_decides(store, ledger):
    spec = {"cwd": "/", "command": ["true"]}
    batch = ledger.declare("b", {**spec, "retry_delay": 3_000}, "me", NOW)
    assert delay_of(ledger, batch.id) == 3_000
    before = dump(store)
    with pytest.raises(InvalidInput, match="hv run --retry-delay"):
        ledger.write(insert.add, [NewTask("a")], "b", "me", NOW, retry_delay=1)
    assert dump(store) == before
    assert delay_of(ledger, ledger.declare("b", spec, "me", NOW).id) == 10_000
