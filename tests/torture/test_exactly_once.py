"""Many processes on one queue: every task is claimed once, finished once, and none is lost."""

from __future__ import annotations

from collections import Counter

import hypervisor
from hypervisor.selftest.invariants import query

PROCESSES = 16
TASKS = 20_000
K = 10


def test_sixteen_processes_on_twenty_thousand_tasks(store, fork_server):
    with hypervisor.open(store.where, relaxed=True) as hv:
        added = hv.add([hypervisor.NewTask(f"task {n}") for n in range(TASKS)])
    said = _drain(fork_server, store, PROCESSES, K)
    logs = {f"worker{n}": done for n, (done, _) in enumerate(said)}

    done = Counter(token.split(".")[0] for log in logs.values() for token in log)
    assert set(done) == set(added.ids), "claimed by nobody, or never added"
    assert set(done.values()) == {1}, "claimed twice"
    assert all(logs.values()), "a process got nothing at all"
    assert {left for _, left in said} == {0}, "told 'nothing to claim' while there was some"
    _ledger_agrees(store, logs)


def test_no_claim_is_told_nothing_while_there_is_some(store, fork_server):
    """Many kinds of tasks, few of each: a worker that is too late for one kind gets another."""
    with hypervisor.open(store.where, relaxed=True) as hv:
        hv.add([hypervisor.NewTask(f"task {n}", type=f"type{n // 4}") for n in range(600)])
    said = _drain(fork_server, store, 8, 1)
    assert sum(len(done) for done, _ in said) == 600
    assert {left for _, left in said} == {0}


def _drain(fork_server, store, processes, k):
    """Empty the queue with this many processes. Each reports what it did, and what was left
    then."""
    relaxed = store.kind == "sqlite"
    children = [
        fork_server.start("drain", store.where, f"worker{n}", k, relaxed) for n in range(processes)
    ]
    for child in children:
        assert child.hear() == "open"
    for child in children:
        child.tell("go")
    said = [child.hear(120) for child in children]
    assert [child.wait() for child in children] == [0] * processes
    return said


def _ledger_agrees(store, logs):
    """The ledger agrees with the reports of the workers."""
    kinds, completions, states, attempts = query(
        store.where,
        "SELECT kind, count(*) FROM events GROUP BY kind",
        "SELECT count(*), count(DISTINCT task) FROM events WHERE kind = 'complete'",
        "SELECT state, attempt, count(*) FROM tasks GROUP BY state, attempt",
        "SELECT a.task, a.number, a.nonce, a.outcome, w.name FROM attempts a "
        "JOIN workers w ON w.id = a.worker",
    )
    assert dict(kinds) == {"add": TASKS, "claim": TASKS, "complete": TASKS}
    assert completions == [(TASKS, TASKS)]
    assert states == [("done", 1, TASKS)]
    told = {(token, name) for name, log in logs.items() for token in log}
    assert {(f"{task}.{n}.{nonce}", name) for task, n, nonce, _, name in attempts} == told
    assert {outcome for _, _, _, outcome, _ in attempts} == {"done"}
