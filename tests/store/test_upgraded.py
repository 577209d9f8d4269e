"""A process of an older version whose store is upgraded while it works: it stops writing."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import closing

import pytest

import hypervisor
from hypervisor.core.errors import StoreNewer
from hypervisor.queue.sql import counts
from hypervisor.store import schema
from tests.store.old_stores import postgres_of_version, set_version, sqlite_of_version
from tests.support.databases import DATABASES

OLDER = schema.VERSION - 1
ITEMS = 20_000

# What it knows is set before anything else is imported, as in a program that ends there.
PROCESS = f"""
import json, sys
from hypervisor.store import schema
schema.VERSION = {OLDER}
import hypervisor
hv = hypervisor.open(sys.argv[1])
hv.add([str(n) for n in range({ITEMS})], batch="load")
acknowledged = []
try:
    leases = hv.claim("old", batch="load")
    while leases:
        token = leases[0].token
        if sys.argv[2] == "fast":
            leases = hv.complete_and_claim([(token, None)], "old", batch="load").leases
        else:
            hv.complete(token)
            leases = None
        acknowledged.append(token)
        print(len(acknowledged), flush=True)
        leases = leases or hv.claim("old", batch="load")
except hypervisor.HypervisorError as error:
    print(json.dumps([error.code, str(error), acknowledged]), flush=True)
"""


@pytest.fixture(params=DATABASES)
def older(request, tmp_path):
    """Where a store of the last schema but one is."""
    if request.param == "sqlite":
        where = str(tmp_path / "store.db")
        sqlite_of_version(where, OLDER)
        return where
    where = request.getfixturevalue("postgres_url")
    postgres_of_version(where, OLDER)
    return where


@pytest.mark.parametrize("path", ["fast", "general"])
def test_an_older_process_stops_writing_at_the_upgrade(older, path):
    command = [sys.executable, "-c", PROCESS, older, path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            until = time.monotonic() + 120
            while int(process.stdout.readline()) < 20:
                assert time.monotonic() < until
            with closing(hypervisor.open(older)) as hv:  # upgrades it
                at_upgrade = done_in(hv)
                *_, last = process.stdout.read().splitlines()
                code, message, acknowledged = json.loads(last)
                assert code == "store_newer"
                assert f"schema {schema.VERSION}, this process knows {OLDER}" in message
                assert "everything saved before is kept" in message
                assert done_in(hv) == at_upgrade, "it wrote after the upgrade"
                assert {token.split(".")[0] for token in acknowledged} == at_upgrade
                assert hv.store.read(counts.corrections) == []
        finally:
            process.kill()


def done_in(hv):
    return {task.id for task in hv.list_tasks(states=("done",), batch="load", limit=ITEMS)}


def test_what_is_open_can_be_read_but_not_changed(store):
    """Also through the calls that take the fast path."""
    before = schema.VERSION
    with closing(hypervisor.open(store.where)) as hv:
        hv.add(["a", "b"])
        (lease,) = hv.claim("w")
        set_version(store, before + 1)
        try:
            for change in (
                lambda: hv.add(["c"]),
                lambda: hv.claim("w"),
                lambda: hv.heartbeat([lease.token]),
                lambda: hv.complete(lease.token),
                lambda: hv.complete_and_claim([(lease.token, None)], "w"),
            ):
                with pytest.raises(StoreNewer, match="upgraded by a newer Hypervisor"):
                    change()
            assert sorted(task.title for task in hv.list_tasks()) == ["a", "b"]
        finally:
            set_version(store, before)
        hv.complete(lease.token)  # nothing was lost
