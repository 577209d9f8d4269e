"""What has finished last: the end of the log is read once, then only what is new."""

import pytest

import hypervisor
from hypervisor import NewTask
from hypervisor.monitoring import finished as finishing
from hypervisor.monitoring.finished import finished, finished_since
from hypervisor.queue import queries


@pytest.fixture(params=["sqlite", "postgres"])
def hv(request, tmp_path):
    if request.param == "sqlite":
        where = tmp_path / "x.db"
    else:
        where = request.getfixturevalue("postgres_url")
    with hypervisor.open(where, relaxed=True) as opened:
        yield opened


@pytest.fixture
def read(monkeypatch):
    """How many events each look at the log has read."""
    counts = []

    def counting(*args):
        found = queries.events(*args)
        counts.append(len(found))
        return found

    monkeypatch.setattr(finishing, "events", counting)
    return counts


def end(hv, count, batch=None):
    hv.add([NewTask("x") for _ in range(count)], batch=batch)
    leases = hv.claim("w", limit=count)
    for lease in leases:
        hv.complete(lease.token)
    return [lease.task.id for lease in leases]


def test_the_last_ones_come_first_and_only_new_events_are_read(hv, read):
    first = end(hv, 2)
    assert [row.task.id for row in finished(hv)] == first[::-1]
    read.clear()
    later = end(hv, 1)
    assert [row.task.id for row in finished(hv)] == [*later, *first[::-1]]
    assert read == [3], "added, claimed, completed"
    hv.retry(later[0])
    assert [row.task.id for row in finished(hv)] == first[::-1]


def test_many_new_events_are_skipped(hv, monkeypatch):
    monkeypatch.setattr(finishing, "MAX_READ", 6)
    end(hv, 1)
    assert len(finished(hv)) == 1
    last = end(hv, 7)
    assert [row.task.id for row in finished(hv)] == last[:0:-1], "the last six events"
    assert finished_since(hv, 0) == ({"done": 6}, False)


def test_tasks_of_a_deleted_batch_are_left_out(hv):
    end(hv, 1, batch="b")
    assert len(finished(hv)) == 1
    hv.delete_batch("b")
    assert finished(hv) == ()
