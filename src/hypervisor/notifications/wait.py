"""Waiting for events with a cursor: a named place in the log that outlives its reader.

What is read stays to be read until it is acknowledged: a reader that dies between
reading and acknowledging gets the same events again, in the same order, and one that
has acknowledged never does. One reader per cursor; several have a cursor each.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic, sleep
from typing import NamedTuple

from hypervisor.batches.reduce import has_pending_reduce
from hypervisor.batches.sql import chunks
from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput
from hypervisor.notifications.sql import cursors
from hypervisor.queue.context import Context, batch_id
from hypervisor.queue.event import Event
from hypervisor.queue.lifecycle import ACTIVE, IN_PROGRESS, MERGING, WAITING
from hypervisor.queue.sql import queries
from hypervisor.queue.task import TaskFilter
from hypervisor.runs import sql as runs_sql

LONGEST_WAIT = 45.0  # seconds; clients give up on a call soon after
POLL = 0.04
PAGE = 1_000
MOST_EVENTS = 1_000
# What somebody who waits for work wants to hear: how tasks ended, and what needs a decision.
NEWS = (
    "complete",
    "fail",
    "poison",
    "block",
    "ask",
    "cancel",
    "merge",
    "conflict",
    "approve",
    "reject",
    "pause",
    "resume",
    "brake",
    "budget",
    "checkpoint",
    "trouble",
    "overseer",
)
TO_RUN = (WAITING, ACTIVE, IN_PROGRESS, MERGING)  # the others have ended, or need a person
MOST_LOOKED_AT = 100  # tasks, to find out why nothing moves
EVENT, FINISHED = "event", "finished"
UNTIL = (EVENT, FINISHED)


class Waiting(NamedTuple):
    """What a reader waits for."""

    cursor: str
    until: str = EVENT
    batch: str | None = None  # its id; None: any
    kinds: tuple[str, ...] = NEWS  # empty: every kind
    limit: int = 100


class News(NamedTuple):
    """Events behind a cursor. Acknowledging `last` says that they have been dealt with."""

    events: tuple[Event, ...]
    last: int
    more: bool = False  # there are further ones already
    finished: bool | None = None  # whether nothing of the batch is left to run; None: any batch
    checkpoint: int = 0  # the chunk that waits for a person's decision
    stuck: str = ""  # all that is left waits for this task, which ended and is not done


def wait_for_events(
    hv: Context,
    cursor: str,
    until: str = EVENT,
    timeout: float = 30.0,
    ack: int | None = None,
    batch: str | None = None,
    kinds: Sequence[str] = NEWS,
    limit: int = 100,
) -> News:
    """Wait for events behind a named cursor; none is lost, and none acknowledged comes again."""
    wanted = waiting(hv, cursor, until, batch, kinds, limit)
    deadline = monotonic() + checked_timeout(timeout)
    found = News((), acknowledge(hv, wanted.cursor, ack))
    while True:
        found = look(hv, wanted, found)
        if is_enough(wanted, found) or monotonic() >= deadline:
            return found
        sleep(POLL)


def waiting(
    hv: Context,
    cursor: str,
    until: str = EVENT,
    batch: str | None = None,
    kinds: Sequence[str] = NEWS,
    limit: int = 100,
) -> Waiting:
    """What is waited for, checked."""
    validate.name("the cursor", cursor)
    validate.number("the limit", limit, 1, MOST_EVENTS)
    if until not in UNTIL:
        raise InvalidInput(f"unknown: until {until[:40]!r}. Wait until {' or '.join(UNTIL)}.")
    if until == FINISHED and not batch:
        raise InvalidInput("until finished: which batch? Name it.")
    found = batch_id(hv, batch or None)
    return Waiting(cursor, until, found, validate.names("kinds", kinds) if kinds else (), limit)


def checked_timeout(timeout: float) -> float:
    if not 0 <= timeout <= LONGEST_WAIT:
        raise InvalidInput(f"the timeout must be 0 to {LONGEST_WAIT:.0f} seconds; then call again.")
    return timeout


def acknowledge(hv: Context, cursor: str, number: int | None) -> int:
    """Move a cursor on, never back; returns where it stands."""
    stands = hv.store.read(cursors.cursor, cursor)
    if number is None or number <= stands:
        return stands
    validate.number("the number to acknowledge", number, 0, 2**62)
    if not queries.events(hv.store, number - 1, 1):
        raise InvalidInput(
            f"there is no event {number} yet: acknowledge the `last` of an answer. "
            f"The cursor stays at {stands}."
        )
    hv.store.write_unsynced(cursors.move, cursor, number, hv.now())
    return number


def start_cursor(hv: Context, cursor: str) -> int:
    """A cursor at the end of the log, unless there is one of that name: what comes is news."""
    validate.name("the cursor", cursor)
    if any(each.name == cursor for each in hv.store.read(cursors.cursors)):
        return hv.store.read(cursors.cursor, cursor)
    end = end_of_log(hv)
    hv.store.write_unsynced(cursors.move, cursor, end, hv.now())
    return end


def end_of_log(hv: Context) -> int:
    """The number of the last event there is."""
    low, high = 0, 1
    while queries.events(hv.store, high - 1, 1):
        low, high = high, high * 2
    while low + 1 < high:  # the last number that has an event at or behind it
        middle = (low + high) // 2
        low, high = (middle, high) if queries.events(hv.store, middle - 1, 1) else (low, middle)
    return low


def look(hv: Context, wanted: Waiting, so_far: News) -> News:
    """What has come since `so_far`, added to it; costs one small query if nothing has."""
    found = _read(hv, wanted, so_far)
    if wanted.batch is None or (found.last == so_far.last and so_far.finished is not None):
        return found
    found = _judged(hv, wanted.batch, found)
    # What ended between the two looks is part of the answer that says so.
    return _read(hv, wanted, found) if found.finished else found


def _read(hv: Context, wanted: Waiting, so_far: News) -> News:
    events, last = list(so_far.events), so_far.last
    while page := queries.events(hv.store, last, PAGE):
        for event in page:
            if len(events) == wanted.limit:
                return so_far._replace(events=tuple(events), last=last, more=True)
            last = event.seq
            if _is_wanted(wanted, event):
                events.append(event)
        if len(page) < PAGE:
            break
    return so_far._replace(events=tuple(events), last=last, more=False)


def is_enough(wanted: Waiting, found: News) -> bool:
    """Whether the reader should have its answer now."""
    if wanted.until == FINISHED:
        return bool(found.finished or found.checkpoint or found.stuck or found.more)
    return bool(found.events)


def _is_wanted(wanted: Waiting, event: Event) -> bool:
    if wanted.kinds and event.kind not in wanted.kinds:
        return False
    return wanted.batch is None or event.batch == wanted.batch


def _judged(hv: Context, batch: str, found: News) -> News:
    states = hv.store.read(queries.stats, batch, hv.now(), False).states
    to_run = sum(states.get(state, 0) for state in TO_RUN)
    decision = next((c.number for c in hv.store.read(chunks.every, batch) if c.awaits_decision), 0)
    only_waits = to_run and to_run == states.get(WAITING)
    return found._replace(
        finished=any(states.values()) and not to_run,
        checkpoint=decision,
        stuck=_stuck(hv, batch)
        if only_waits and not decision and not has_pending_reduce(hv, batch)
        else "",
    )


def _stuck(hv: Context, batch: str) -> str:
    """A task that others of the batch wait for in vain; "" while any of those may yet run."""
    waiting = hv.store.read(queries.list_tasks, TaskFilter((WAITING,), batch), MOST_LOOKED_AT)
    found = [_hindrance(hv, task.id) for task in waiting]
    return found[0] if all(found) else ""


def _hindrance(hv: Context, task: str) -> str:
    """What a task needs, directly or not, and what has ended without being done."""
    seen, level = {task}, [task]
    while level:
        needs = {
            need for each in level for need in hv.store.read(queries.detail, each).waits_for
        } - seen
        states = hv.store.read(runs_sql.states, sorted(needs))
        for need, state in states.items():
            if state not in TO_RUN:
                return need
        seen |= needs
        level = [need for need, state in states.items() if state == WAITING][:MOST_LOOKED_AT]
    return ""
