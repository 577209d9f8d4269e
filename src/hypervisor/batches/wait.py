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


class Wait(NamedTuple):
    """What a reader waits for."""

    cursor: str
    until: str = EVENT
    batch: str | None = None  # None: any
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
    *,
    batch: str | None = None,
    kinds: Sequence[str] = NEWS,
    limit: int = 100,
) -> News:
    """Wait for events behind a named cursor; none is lost, and none acknowledged comes again."""
    wait = check_wait(hv, Wait(cursor, until, batch, tuple(kinds), limit))
    deadline = monotonic() + check_timeout(timeout)
    news = News((), acknowledge(hv, wait.cursor, ack))
    while True:
        news = look(hv, wait, news)
        if is_enough(wait, news) or monotonic() >= deadline:
            return news
        sleep(POLL)


def check_wait(hv: Context, wait: Wait) -> Wait:
    """The same with the batch's id, or InvalidInput."""
    validate.name("the cursor", wait.cursor)
    validate.number("the limit", wait.limit, 1, MOST_EVENTS)
    if wait.until not in UNTIL:
        raise InvalidInput(f"unknown: until {wait.until[:40]!r}. Wait until {' or '.join(UNTIL)}.")
    if wait.until == FINISHED and not wait.batch:
        raise InvalidInput("until finished: which batch? Name it.")
    kinds = validate.names("kinds", wait.kinds) if wait.kinds else ()
    return wait._replace(batch=batch_id(hv, wait.batch or None), kinds=kinds)


def check_timeout(timeout: float) -> float:
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
    end = queries.end_of_log(hv.store)
    hv.store.write_unsynced(cursors.move, cursor, end, hv.now())
    return end


def look(hv: Context, wait: Wait, so_far: News) -> News:
    """What has come since `so_far`, added to it; costs one small query if nothing has."""
    news = _read(hv, wait, so_far)
    if wait.batch is None or (news.last == so_far.last and so_far.finished is not None):
        return news
    news = _with_progress(hv, wait.batch, news)
    # What ended between the two looks is part of the answer that says so.
    return _read(hv, wait, news) if news.finished else news


def _read(hv: Context, wait: Wait, so_far: News) -> News:
    events, last = list(so_far.events), so_far.last
    while page := queries.events(hv.store, last, PAGE):
        for event in page:
            if len(events) == wait.limit:
                return so_far._replace(events=tuple(events), last=last, more=True)
            last = event.seq
            if _is_wanted(wait, event):
                events.append(event)
        if len(page) < PAGE:
            break
    return so_far._replace(events=tuple(events), last=last, more=False)


def is_enough(wait: Wait, news: News) -> bool:
    """Whether the reader should have its answer now."""
    if wait.until == FINISHED:
        return bool(news.finished or news.checkpoint or news.stuck or news.more)
    return bool(news.events)


def _is_wanted(wait: Wait, event: Event) -> bool:
    if wait.kinds and event.kind not in wait.kinds:
        return False
    return wait.batch is None or event.batch == wait.batch


def _with_progress(hv: Context, batch: str, news: News) -> News:
    states = hv.store.read(queries.stats, batch, hv.now(), False).states
    to_run = sum(states.get(state, 0) for state in TO_RUN)
    decision = next((c.number for c in hv.store.read(chunks.every, batch) if c.awaits_decision), 0)
    only_waits = to_run and to_run == states.get(WAITING)
    return news._replace(
        finished=any(states.values()) and not to_run,
        checkpoint=decision,
        stuck=_stuck(hv, batch)
        if only_waits and not decision and not has_pending_reduce(hv, batch)
        else "",
    )


def _stuck(hv: Context, batch: str) -> str:
    """A task that others of the batch wait for in vain; "" while any of those may yet run."""
    waiting = hv.store.read(queries.list_tasks, TaskFilter((WAITING,), batch), MOST_LOOKED_AT)
    blockers = [_blocker(hv, task.id) for task in waiting]
    return blockers[0] if all(blockers) else ""


def _blocker(hv: Context, task: str) -> str:
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
