"""Inspecting a store from outside: plain queries, all rows, and invariants."""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import closing
from typing import Any

import hypervisor
from hypervisor.queue.sql import counts
from hypervisor.store import schema
from tests.support.databases import TABLES

Rows = list[tuple[Any, ...]]

SNAPSHOT = {
    "tasks": "SELECT id, state, attempt, open_deps, start_at, lane FROM tasks",
    "lanes": "SELECT id, keyed FROM lanes",
    "needs": "SELECT task, needs FROM dependencies",
    "keys": "SELECT task, key, lane, queued FROM task_keys",
    "holds": "SELECT key, lane, task FROM key_holds",
    "live": "SELECT task, number FROM attempts WHERE ended_at IS NULL",
    "events": "SELECT kind, task, attempt, state FROM events ORDER BY id",
    "ends": "SELECT task, number, outcome FROM attempts",
}


def query(where: str, *statements: str) -> list[Rows]:
    """The rows of each statement, all from one consistent view."""
    with closing(hypervisor.open(where)) as hv:
        found: list[Rows] = _database(hv).read(lambda s: [s.rows(sql) for sql in statements])
        return found


def everything(where: str) -> dict[str, Rows]:
    """Every row of every table, but for the numbers that PostgreSQL's events get when read."""
    events = ", ".join(name for name, _ in schema.COLUMNS["events"])
    columns = dict.fromkeys(TABLES, "*") | {"events": f"id, {events}"}
    statements = [f"SELECT {columns[table]} FROM {table}" for table in TABLES]
    found = query(where, *statements)
    return {table: sorted(rows, key=repr) for table, rows in zip(TABLES, found, strict=True)}


def check_invariants(hv: hypervisor.Hypervisor) -> Counter[str]:
    """Check what must hold at every moment. Returns the number of tasks by state."""
    found = _database(hv).read(lambda s: {name: s.rows(sql) for name, sql in SNAPSHOT.items()})
    state = {row[0]: row[1] for row in found["tasks"]}
    _check_readiness(found, state)
    _check_holds(found, state)
    _check_log(found, state)
    assert _database(hv).read(counts.corrections) == []
    return Counter(state.values())


def _check_readiness(found: dict[str, Rows], state: dict[str, str]) -> None:
    """Readiness as stored is readiness as defined."""
    keyed = {lane for lane, has_keys in found["lanes"] if has_keys}
    unfinished = Counter(task for task, needed in found["needs"] if state[needed] != "done")
    held = {(key, lane): task for key, lane, task in found["holds"]}
    keys = defaultdict(list)
    for task, key, lane, queued in found["keys"]:
        keys[task].append((key, lane, queued))
    for task, now, _, open_deps, start_at, lane in found["tasks"]:
        assert open_deps == unfinished[task], f"{task} waits for {open_deps}"
        free = open_deps == 0 and start_at is None
        if now == "active":
            assert free
            assert all(held[key, lane] == task for key, lane, _ in keys[task])
        elif now == "waiting" and free:
            assert lane in keyed, f"{task} waits for nothing"
            shut_out = [held.get((key, own)) for key, lane, _ in keys[task] for own in (0, lane)]
            assert any(holder not in (None, task) for holder in shut_out), f"{task} waits in vain"
            assert all(queued for _, _, queued in keys[task])


def _check_holds(found: dict[str, Rows], state: dict[str, str]) -> None:
    """One live attempt and all its keys for what is in progress, none for anything else."""
    attempt = {row[0]: row[2] for row in found["tasks"]}
    live = {row[0]: row[1] for row in found["live"]}
    assert len(live) == len(found["live"]), "two live attempts on one task"
    assert live == {task: attempt[task] for task in state if state[task] == "in_progress"}
    running = {(key, task) for key, lane, task in found["holds"] if lane == 0}
    assert running == {
        (key, task) for task, key, _, _ in found["keys"] if state[task] == "in_progress"
    }
    assert all(state[task] == "active" for _, lane, task in found["holds"] if lane)


def _check_log(found: dict[str, Rows], state: dict[str, str]) -> None:
    """The log, played back, gives the states; no key is ever held twice in it."""
    keys = defaultdict(list)
    for task, key, _, _ in found["keys"]:
        keys[task].append(key)
    after: dict[str, str] = {}
    holder: dict[str, str] = {}
    completed: Counter[str] = Counter()
    for kind, task, _, then in found["events"]:
        if then is None:
            continue
        if after.get(task) == "in_progress":
            for key in keys[task]:
                assert holder.pop(key) == task
        if then == "in_progress":
            assert kind == "claim" and after[task] == "active"
            for key in keys[task]:
                assert holder.setdefault(key, task) == task, f"{key} held twice"
        completed[task] += kind == "complete"
        after[task] = then
    assert after == state
    done = Counter(task for task, _, outcome in found["ends"] if outcome == "done")
    assert +completed == done


def _database(hv: hypervisor.Hypervisor) -> Any:
    return hv.store
