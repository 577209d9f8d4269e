"""What must hold in a store at every moment."""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import closing

import hypervisor
from hypervisor.queue.context import Context
from hypervisor.queue.sql import counts
from hypervisor.selftest import sql
from hypervisor.selftest.part import ensure
from hypervisor.selftest.sql import Rows


def query(where: str, *statements: str) -> list[Rows]:
    """The rows of each statement, all from one consistent view."""
    with closing(hypervisor.open(where)) as hv:
        return hv.store.read(sql.rows, *statements)


def everything(where: str) -> dict[str, Rows]:
    """Every row of every table."""
    with closing(hypervisor.open(where)) as hv:
        return hv.store.read(sql.everything)


def check_invariants(hv: Context) -> Counter[str]:
    """Raises Violation. Returns the number of tasks by state."""
    found = hv.store.read(sql.snapshot)
    state = {row[0]: row[1] for row in found["tasks"]}
    _check_readiness(found, state)
    _check_holds(found, state)
    _check_log(found, state)
    wrong = hv.store.read(counts.corrections)
    ensure(wrong == [], f"the kept numbers of tasks are wrong: {wrong}")
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
        ensure(open_deps == unfinished[task], f"{task} waits for {open_deps} tasks, wrongly")
        free = open_deps == 0 and start_at is None
        if now == "active":
            ensure(free, f"{task} is ready, but has to wait")
            own = all(held.get((key, lane)) == task for key, lane, _ in keys[task])
            ensure(own, f"{task} is ready without its keys")
        elif now == "waiting" and free:
            ensure(lane in keyed, f"{task} waits for nothing")
            shut_out = [held.get((key, own)) for key, lane, _ in keys[task] for own in (0, lane)]
            blocked = any(holder not in (None, task) for holder in shut_out)
            ensure(blocked, f"{task} waits for keys that are free")
            ensure(all(queued for _, _, queued in keys[task]), f"{task} is not in line for a key")


def _check_holds(found: dict[str, Rows], state: dict[str, str]) -> None:
    """One live attempt and all its keys for what is in progress, none for anything else."""
    attempt = {row[0]: row[2] for row in found["tasks"]}
    live = {row[0]: row[1] for row in found["live"]}
    ensure(len(live) == len(found["live"]), "a task has two live attempts")
    expected = {task: attempt[task] for task in state if state[task] == "in_progress"}
    ensure(live == expected, "the live attempts are not those of the tasks in progress")
    running = {(key, task) for key, lane, task in found["holds"] if lane == 0}
    keys = {(key, task) for task, key, _, _ in found["keys"] if state[task] == "in_progress"}
    ensure(running == keys, "running tasks do not hold exactly their keys")
    ready = all(state[task] == "active" for _, lane, task in found["holds"] if lane)
    ensure(ready, "a task that is not ready holds a key of its lane")


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
                ensure(holder.pop(key, None) == task, f"{task} did not hold the key {key}")
        if then == "in_progress":
            from_ready = kind == "claim" and after.get(task) == "active"
            ensure(from_ready, f"{task} was started without being ready")
            for key in keys[task]:
                ensure(holder.setdefault(key, task) == task, f"the key {key} was held twice")
        completed[task] += kind == "complete"
        after[task] = then
    ensure(after == state, "the log, played back, gives other states")
    done = Counter(task for task, _, outcome in found["ends"] if outcome == "done")
    ensure(+completed == done, "the log has other completions than the attempts")
