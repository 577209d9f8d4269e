"""What must hold after every step, read from the tables directly and compared with the model."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from hypervisor.queue.event import Event
from hypervisor.queue.lifecycle import QUEUE, TRANSITIONS
from hypervisor.queue.sql import counts
from tests.queue.model import Model
from tests.queue.model_state import QUEUED
from tests.support.databases import Store
from tests.support.ledger import Ledger

TASKS = """
SELECT t.id, t.state, t.rank, t.attempt, t.deadline, t.open_deps, t.start_at, t.retries,
    t.failures, t.crashes, t.reason, t.unblock, t.batch, l.batch, l.type, l.branch, l.priority,
    l.requires, l.assignee, l.keyed, t.lane
FROM tasks t JOIN lanes l ON l.id = t.lane
"""
ATTEMPTS = (
    "SELECT task, number, nonce, worker, outcome, ended_at FROM attempts ORDER BY task, number"
)
LINKS = "SELECT task, needs FROM dependencies"
KEYS = "SELECT task, key, lane, rank, queued FROM task_keys"
HOLDS = "SELECT key, lane, task FROM key_holds"
LANES = "SELECT id, number, batch, type, paused FROM lanes"
PAUSES = "SELECT scope, name FROM pauses"
SUBMISSIONS = "SELECT task, attempt, batch FROM submissions"
EVENTS = """
SELECT id, at, kind, task, batch, attempt, state, actor, data FROM events
WHERE id > {} ORDER BY id
"""


class Seen:
    """The tables as they are now, with the events behind the one numbered `last`."""

    def __init__(self, store: Store, last: int = 0) -> None:
        tasks, self.attempts, links, self.keys, holds, *more, events = store.query(
            TASKS, ATTEMPTS, LINKS, KEYS, HOLDS, LANES, PAUSES, SUBMISSIONS, EVENTS.format(last)
        )
        self.lanes, self.pauses, self.submissions = more
        self.events = [Event._make((*row[:8], json.loads(row[8] or "null"))) for row in events]
        self.last = self.events[-1].seq if events else last
        self.tasks: dict[str, Any] = {row[0]: row for row in tasks}
        self.states = {row[0]: row[1] for row in tasks}
        self.links = set(links)
        self.holds = set(holds)

    def in_state(self, state: str) -> set[str]:
        return {task for task, now in self.states.items() if now == state}


def check_tasks(model: Model, seen: Seen) -> None:
    """Every task is as the model has it; readiness equals its definition."""
    assert seen.tasks.keys() == model.tasks.keys()
    for task_id, task in model.tasks.items():
        row = seen.tasks[task_id]
        _, state, rank, attempt, deadline, open_deps, start_at, retries = row[:8]
        failures, crashes, reason, unblock = row[8:12]
        assert state == (model.state(task) or state), (task_id, state, model.state(task))
        assert model.state(task) or state in ("waiting", "active")
        assert rank == task.rank
        assert attempt == len(task.attempts)
        assert deadline == (task.live.until if task.live else None)
        assert open_deps == model.open_needs(task)
        assert start_at == task.start_at
        assert retries == task.retries
        assert (failures, crashes) == (task.failures, task.crashes)
        if reason is not None and reason.startswith("poisoned: "):
            assert state == "failed" and crashes == 3 and reason.endswith(f"last: {task.reason}")
        else:
            assert (reason, unblock) == (task.reason, task.unblock)
        lane = (*row[13:17], tuple(row[17].split()), row[18], bool(row[19]))
        assert row[12] == task.batch and lane == task.lane
    links = {(task.id, needed) for task in model.tasks.values() for needed in task.needs}
    assert seen.links == links


def check_leases(model: Model, seen: Seen) -> None:
    """One live lease per task in progress, none elsewhere; the history is complete."""
    rows = [
        (task.id, number, attempt.nonce, attempt.worker.id, attempt.outcome)
        for task in sorted(model.tasks.values(), key=lambda task: task.id)
        for number, attempt in enumerate(task.attempts, 1)
    ]
    assert [row[:5] for row in seen.attempts] == rows
    live = [row[0] for row in seen.attempts if row[5] is None]
    assert len(live) == len(set(live))
    assert set(live) == seen.in_state("in_progress")


def check_keys(model: Model, seen: Seen) -> None:
    """The holder of a key excludes the others, and no task waits for a key without a holder."""
    holds: set[tuple[str, int, str]] = set()
    queueing: set[str] = set()
    owner: dict[tuple[str, int], str] = {}
    for task_id, task in model.tasks.items():
        state, lane = seen.states[task_id], seen.tasks[task_id][20]
        if task.keys and state in ("active", "in_progress"):
            where = 0 if state == "in_progress" else lane
            for key in task.keys:
                assert (key, where) not in owner, f"{task_id} and {owner[key, where]} share {key}"
                owner[key, where] = task_id
                holds.add((key, where, task_id))
    for task_id, task in model.tasks.items():
        state, lane = seen.states[task_id], seen.tasks[task_id][20]
        if task.keys and state == "active":
            running = [key for key in task.keys if (key, 0) in owner]
            assert not running, f"{task_id} is active, but {running} is held by a running task"
        if task.keys and state == "waiting" and task.state == QUEUED and not model.hindered(task):
            queueing.add(task_id)
            blocked = [key for key in task.keys if (key, 0) in owner or (key, lane) in owner]
            assert blocked, f"{task_id} waits for keys that nobody holds: a lost wake-up"
    assert seen.holds == holds
    assert {(row[0], row[1]) for row in seen.keys} == {
        (task.id, key) for task in model.tasks.values() for key in task.keys
    }
    for task_id, _, lane, rank, queued in seen.keys:
        assert (lane, rank) == (seen.tasks[task_id][20], seen.tasks[task_id][2])
        assert queued == (task_id in queueing)


def check_lanes(lanes: list[Any], pauses: list[Any]) -> None:
    """A lane is paused exactly when a pause covers it, and its number is its own."""
    in_force = set(pauses)
    for lane, _, batch, kind, paused in lanes:
        covered = in_force & {("all", ""), ("batch", batch), ("type", kind)}
        assert paused == bool(covered), (lane, batch, kind, in_force)
    numbers = [row[1] for row in lanes]
    assert len(set(numbers)) == len(numbers)


def check_lanes_of(store: Store) -> None:
    check_lanes(*store.query(LANES, PAUSES))


def check_pauses(model: Model, seen: Seen) -> None:
    """The pauses are those that were requested, and the lanes follow them."""
    assert set(seen.pauses) == model.pauses
    check_lanes(seen.lanes, seen.pauses)


def check_submissions(model: Model, seen: Seen) -> None:
    """What is to be merged is the last attempt of every task that is merging."""
    assert set(seen.submissions) == {
        (task.id, len(task.attempts), task.batch)
        for task in model.tasks.values()
        if task.state == "merging"
    }


def check_counts(ledger: Ledger, seen: Seen) -> None:
    """The kept numbers of tasks are what counting them gives."""
    real = Counter((row[12], row[14], row[1]) for row in seen.tasks.values())
    assert ledger.read(counts.counts) == real
    assert ledger.read(counts.corrections) == []


def check_events(model: Model, replayed: dict[str, str], seen: Seen, now: int) -> None:
    """Each new line of the log is a transition of the lifecycle, and replaying all of
    them gives the current states. It contains what was requested, in order, and nothing else."""
    for event in seen.events:
        assert event.at == now
        if event.task:
            assert event.batch == model.tasks[event.task].batch
        if event.state is not None:
            before = replayed.get(event.task)
            _check_arrow(event, before)
            replayed[event.task] = event.state
    assert replayed == seen.states
    asked = [event for event in seen.events if event.kind not in ("ready", "hold")]
    assert [(e.kind, e.task, e.attempt) for e in asked] == [
        (e.kind, e.task, e.attempt) for e in model.events
    ]
    for event, expected in zip(asked, model.events, strict=True):
        assert expected.actor in (None, event.actor), (event, expected)


def check_numbers(told: list[Event], written: list[Event], last: int) -> None:
    """Readers get every event once, in order, numbered without gaps."""
    assert [event.seq for event in told] == list(range(last + 1, last + 1 + len(written)))
    assert [event[1:] for event in told] == [event[1:] for event in written]


def _check_arrow(event: Event, before: str | None) -> None:
    if before is None:
        assert event.kind == "add" and event.state in ("inbox", "waiting", "active"), event
        return
    after = TRANSITIONS[before, event.kind]
    allowed = ("waiting", "active") if after == QUEUE else (after,)
    assert event.state in allowed, (before, event)
