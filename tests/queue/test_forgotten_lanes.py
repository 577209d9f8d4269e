"""A process's cache of lanes, when a transaction fails or another thread clears it."""

from __future__ import annotations

import threading

import psycopg

import hypervisor
from hypervisor.queue.sql import insert, queries
from hypervisor.queue.sql.lanes import LaneBook
from hypervisor.queue.task import NewTask
from hypervisor.store.postgres import PostgresDatabase
from tests.support.given import NOW


def test_a_second_try_does_not_believe_the_lanes_of_the_first(postgres_url):
    """The first try lost a conflict, after it had read back the lane it created."""
    database, other = PostgresDatabase(postgres_url), PostgresDatabase(postgres_url)
    tries = []

    def losing(session):
        new = [NewTask("a", type="new", exclusive=("k",))]
        tries.append(insert.add(session, new, None, "me", NOW))
        if len(tries) == 1:
            raise psycopg.errors.DeadlockDetected
        return tries[-1]

    added = database.write(losing)
    assert len(tries) == 2
    assert other.read(queries.task, added.ids[0]).type == "new"
    database.close()
    other.close()


def test_a_thread_that_forgets_the_lanes_does_not_harm_the_others(tmp_path):
    """They are forgotten whenever a write fails, in any thread."""
    with hypervisor.open(tmp_path / "store.db", relaxed=True) as hv:
        hv.add([NewTask(str(n)) for n in range(400)])
        over = threading.Event()

        def forget():
            while not over.is_set():
                hv.store.caches.of(LaneBook).rolled_back()

        thread = threading.Thread(target=forget)
        thread.start()
        try:
            [lease] = hv.claim("w")
            for _ in range(399):
                [lease] = hv.complete_and_claim([(lease.token, None)], "w").leases
        finally:
            over.set()
            thread.join(180)
        hv.complete(lease.token)
        assert hv.stats().states["done"] == 400


def test_completing_under_a_schema_forgets_no_lanes(tmp_path, monkeypatch):
    with hypervisor.open(tmp_path / "store.db", relaxed=True) as hv:
        [task] = hv.add([NewTask("a")], "b").ids
        hv.store.write(lambda s: s.run("UPDATE batches SET spec = ?", ('{"schema":"{}"}',)))
        [lease] = hv.claim("w")
        book = hv.store.caches.of(LaneBook)
        monkeypatch.setattr(book, "rolled_back", None)
        assert hv.complete(lease.token, {"data": 1}).state == "done"
        assert hv.show(task).detail.task.result == {"data": 1}
