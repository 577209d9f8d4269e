"""Acknowledged changes survive a kill right afterwards."""

from __future__ import annotations

import os
import random
import signal

import pytest

import hypervisor
from hypervisor.selftest.invariants import check_invariants, query
from tests.support.crashing_postgres import Cluster

ROUNDS = 50


def test_worker_killed_right_after_the_acknowledgement(fork_server, tmp_path):
    where = str(tmp_path / "store.db")
    dice = random.Random(50)
    acknowledged = []
    for n in range(ROUNDS):
        child = fork_server.start("acknowledger", where, f"worker{n}")
        for _ in range(dice.randint(1, 6)):
            acknowledged.append(child.hear())
        child.kill()
        acknowledged += child.hear_all()  # said before it died, read after
        assert child.wait() == -signal.SIGKILL
        _check(where, acknowledged)
    with hypervisor.open(where) as hv:
        check_invariants(hv)
    assert {kind for kind, _ in acknowledged} == {"added", "done"}


@pytest.fixture(scope="module")
def cluster(postgres_server):  # which sees to it that the package finds its folders
    server = Cluster()
    yield server
    server.close()


def test_postgres_stopped_right_after_acknowledgements(fork_server, cluster):
    """The same clients continue after each restart, without being opened again."""
    where = cluster.url
    hypervisor.open(where).close()
    crew = [fork_server.start("acknowledger", where, f"worker{n}") for n in range(4)]
    acknowledged, interruptions = [], 0
    for n in range(ROUNDS):
        for child in crew:
            heard = child.hear()
            while heard[0] == "unavailable":
                heard = child.hear()
            acknowledged.append(heard)
        cluster.crash()
        for child in crew:
            said = _until_unavailable(child)
            acknowledged += [each for each in said if each[0] != "unavailable"]
            interruptions += len(said) and said[-1][0] == "unavailable"
        cluster.start_again()
        if n % 10 == 9:
            _check(where, acknowledged)
    for child in crew:
        os.kill(child.pid, signal.SIGSTOP)  # no more changes
    _check(where, acknowledged)
    with hypervisor.open(where) as hv:
        check_invariants(hv)
    assert interruptions == ROUNDS * len(crew), "a client did not notice"
    ((held,),) = query(where, "SELECT count(*) FROM tasks WHERE state = 'in_progress'")[0]
    print(f"{len(acknowledged)} acknowledgements over {ROUNDS} crashes, {held} claims unanswered")


def test_client_survives_a_restart(cluster):
    with hypervisor.open(cluster.url) as hv:
        first = hv.add([hypervisor.NewTask("before")]).ids
        (lease,) = hv.claim("worker")
        cluster.crash()
        with pytest.raises(hypervisor.StoreError) as refused:
            hv.complete(lease.token)
        assert refused.value.code == "store_unavailable" and "\n" not in str(refused.value)
        with pytest.raises(hypervisor.StoreError):
            hv.claim("worker")
        cluster.start_again()
        assert hv.complete(lease.token).state == "done"
        assert hv.show(first[0]).detail.task.state == "done"


def test_a_replica_that_takes_over_has_all_that_was_acknowledged(fork_server, postgres_server):
    """With synchronous replication; the clients find the new primary by the hosts in the URL."""
    primary = Cluster()
    try:
        where = primary.add_replica()
        hypervisor.open(where).close()
        crew = [fork_server.start("acknowledger", where, f"worker{n}") for n in range(4)]
        acknowledged = [child.hear() for _ in range(25) for child in crew]
        primary.crash()
        for child in crew:
            acknowledged += _until_unavailable(child)[:-1]
        primary.promote_replica()
        for child in crew:
            while (heard := child.hear())[0] == "unavailable":
                pass
            acknowledged.append(heard)
            os.kill(child.pid, signal.SIGSTOP)  # no more changes
        _check(where, acknowledged)
        with hypervisor.open(where) as hv:
            check_invariants(hv)
        for child in crew:
            child.kill()
    finally:
        primary.close()


def _until_unavailable(child):
    """What a client reports until it notices that its database is gone."""
    said = [child.hear()]
    while said[-1][0] != "unavailable":
        said.append(child.hear())
    return said


def _check(where, acknowledged):
    tasks, attempts = query(
        where,
        "SELECT id, state FROM tasks",
        "SELECT task, number, nonce, outcome FROM attempts",
    )
    states = {row[0]: row[1] for row in tasks}
    done = {f"{task}.{n}.{nonce}" for task, n, nonce, outcome in attempts if outcome == "done"}
    for kind, what in acknowledged:
        assert (what in states) if kind == "added" else (what in done), f"{kind} {what} was lost"
        if kind == "done":
            assert states[what.split(".")[0]] == "done"
