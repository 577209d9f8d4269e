"""PostgreSQL: processes that add tasks do not wait for each other."""

from __future__ import annotations

import psycopg

from hypervisor.queue.task import NewTask
from hypervisor.store.postgres import PostgresDatabase
from hypervisor.store.schema import APPLICATION_ID
from tests.support.ledger import Ledger

NOW = 1_800_000_000_000
HOLD = "SELECT pg_advisory_xact_lock(%s::int, hashtext('lanes'))"


def test_only_a_new_lane_waits_for_others_who_add(postgres_url):
    first, second = _impatient(postgres_url), _impatient(postgres_url)
    first.add([NewTask("a")], None, "me", NOW)
    with psycopg.connect(postgres_url) as other:
        other.execute(HOLD, (APPLICATION_ID,))  # another transaction is about to add a lane
        for ledger in (first, second, second):
            assert ledger.add([NewTask("b")], None, "me", NOW).ids
    assert second.add([NewTask("c", type="new")], None, "me", NOW).ids
    first.close()
    second.close()


def _impatient(url):
    database = PostgresDatabase(url, relaxed=True)
    database._connected().execute("SET lock_timeout TO '5s'")
    return Ledger(database)
