"""Through PgBouncer in transaction mode: each transaction may use another connection."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

import hypervisor
from hypervisor.core.errors import StoreError
from hypervisor.store.postgres import PostgresDatabase
from hypervisor.store.postgres_connection import is_pooled
from tests.support.fleet import Proxy

PROGRAM = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="pgbouncer is not installed")
TASKS, CLIENTS = 60, 4


@pytest.fixture
def pooled_url(postgres_url):
    assert PROGRAM is not None
    proxy = Proxy(postgres_url)  # PgBouncer runs as another user, who cannot reach the socket
    parts = conninfo_to_dict(proxy.url)
    user = parts.get("user") or "postgres"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    folder = f"/tmp/hvb{os.getpid()}"
    os.makedirs(folder, exist_ok=True)
    os.chmod(folder, 0o755)
    with open(f"{folder}/b.ini", "w") as file:
        file.write(
            f"[databases]\n* = host={parts['host']} port={parts.get('port') or 5432} user={user}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\n"
            "pool_mode = transaction\ndefault_pool_size = 2\nunix_socket_dir =\n"
        )
    as_user = ["-u", "nobody"] if os.getuid() == 0 else []
    process = subprocess.Popen(
        [PROGRAM, *as_user, f"{folder}/b.ini"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    url = f"postgresql://{user}@127.0.0.1:{port}/{parts['dbname']}"
    until = time.monotonic() + 20
    while True:
        try:
            psycopg.connect(url).close()
            break
        except psycopg.OperationalError:
            assert process.poll() is None and time.monotonic() < until
            time.sleep(0.05)
    yield url
    process.kill()
    process.wait()
    proxy.close()
    shutil.rmtree(folder)


def test_a_pooler_is_recognized_and_no_setting_stays_behind(postgres_url, pooled_url):
    with psycopg.connect(postgres_url) as direct, psycopg.connect(pooled_url) as pooled:
        assert not is_pooled(direct) and is_pooled(pooled)
    store = PostgresDatabase(pooled_url)
    assert "through a pooler" in store.facts()["database"]
    assert "pooler" not in PostgresDatabase(postgres_url).facts()["database"]
    with psycopg.connect(pooled_url, prepare_threshold=None) as other:
        assert other.execute("SHOW search_path").fetchall() != [("hypervisor",)]
    store.close()


def test_many_clients_share_few_connections(pooled_url):
    with hypervisor.open(pooled_url) as hv:
        hv.add([hypervisor.NewTask(f"t{n}", retries=1) for n in range(TASKS)])

    def work(client):
        done = []
        with hypervisor.open(pooled_url) as own:
            leases = own.claim(f"w{client}")
            while leases:
                done.append(leases[0].task.id)
                step = own.complete_and_claim([(leases[0].token, {"n": len(done)})], f"w{client}")
                leases = step.leases
        return done

    with ThreadPoolExecutor(CLIENTS) as pool:
        done = [task for part in pool.map(work, range(CLIENTS)) for task in part]
    assert len(done) == len(set(done)) == TASKS
    with hypervisor.open(pooled_url) as hv:
        assert hv.stats().states["done"] == TASKS


def test_a_failed_transaction_leaves_the_connection_usable(pooled_url):
    store = PostgresDatabase(pooled_url)
    with pytest.raises(StoreError):
        store.write(lambda session: session.rows("SELECT nothing FROM nowhere"))
    assert store.read(lambda session: session.rows("SELECT count(*) FROM tasks")) == [(0,)]
    store.close()
