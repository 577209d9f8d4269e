"""Waiting for events with a cursor: a named position in the log that outlives its reader.

Events are returned until they are acknowledged: a reader that dies before that gets the same events
again, in the same order. A cursor has one reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic, sleep
from typing import Literal

from hypervisor.batches.sql import chunks
from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput
from hypervisor.core.records import NamedTuple
from hypervisor.notifications.sql import cursors
from hypervisor.queue.context import Context, batch_id
from hypervisor.queue.event import OLD_KINDS, Event
from hypervisor.queue.lifecycle import ACTIVE, IN_PROGRESS, MERGING, WAITING
from hypervisor.queue.sql import queries
from hypervisor.queue.task import TaskFilter
from hypervisor.runs import sql as runs_sql

MAX_WAIT = 45.0  # seconds; clients time out soon after
POLL = 0.04
PAGE = 1_000
MAX_EVENTS = 1_000
# Events a waiting caller needs: how tasks ended, and what needs a decision.
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
    "cooldown",
    "budget",
    "checkpoint",
    "trouble",
    "overseer",
)
TO_RUN = (WAITING, ACTIVE, IN_PROGRESS, MERGING)  # all other states have ended, or need a person
MAX_SCANNED = 100  # tasks, to find out why nothing moves
Until = Literal["event", "finished"]
EVENT: Literal["event"] = "event"
FINISHED: Literal["finished"] = "finished"
UNTIL: tuple[Until, ...] = (EVENT, FINISHED)


class Wait(NamedTuple):
    """What a reader waits for."""

    cursor: str
    until: str = EVENT
    batch: str | None = None  # None: any
    kinds: tuple[str, ...] = NEWS  # empty: every kind
    limit: int = 100


class News(NamedTuple):
    """Events after a cursor. Acknowledge `last` when they have been handled."""

    events: tuple[Event, ...]
    last: int
    more: bool = False  # there are more
    finished: bool | None = None  # whether nothing of the batch is left to run; None: any batch
    checkpoint: int = 0  # the chunk that waits for a person's decision
    stuck: str = ""  # all remaining tasks wait for this one, which ended without being done


def wait_for_events(
    hv: Context,
    cursor: str,
    until: Until = EVENT,
    timeout: float = 30.0,
    ack: int | None = None,
    *,
    batch: str | None = None,
    kinds: Sequence[str] = NEWS,
    limit: int = 100,
) -> News:
    """Wait for events after a named cursor; no event is lost or repeated once acknowledged."""
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
    validate.number("the limit", wait.limit, 1, MAX_EVENTS)
    if wait.until not in UNTIL:
        raise InvalidInput(
            f"invalid value for until: {wait.until[:40]!r} (use {' or '.join(UNTIL)})."
        )
    if wait.until == FINISHED and not wait.batch:
        raise InvalidInput("until finished: no batch given")
    names = validate.names("kinds", wait.kinds) if wait.kinds else ()
    kinds = tuple(OLD_KINDS.get(name, name) for name in names)
    return wait._replace(batch=batch_id(hv, wait.batch or None), kinds=kinds)


def check_timeout(timeout: float) -> float:
    if not 0 <= timeout <= MAX_WAIT:
        raise InvalidInput(
            f"the timeout must be between 0 and {MAX_WAIT:.0f} seconds; to wait longer, call again."
        )
    return timeout


def acknowledge(hv: Context, cursor: str, number: int | None) -> int:
    """Move a cursor forward; returns its position."""
    stands = hv.store.read(cursors.cursor, cursor)
    if number is None or number <= stands:
        return stands
    validate.number("the number to acknowledge", number, 0, 2**62)
    if not queries.events(hv.store, number - 1, 1):
        raise InvalidInput(
            f"no event {number} yet: acknowledge the `last` value of an answer. "
            f"The cursor is still at {stands}."
        )
    hv.store.write_unsynced(cursors.move, cursor, number, hv.now())
    return number


def start_cursor(hv: Context, cursor: str) -> int:
    """Create a cursor at the end of the log, unless it exists; returns its position."""
    validate.name("the cursor", cursor)
    if any(known.name == cursor for known in hv.store.read(cursors.cursors)):
        return hv.store.read(cursors.cursor, cursor)
    end = queries.end_of_log(hv.store)
    hv.store.write_unsynced(cursors.move, cursor, end, hv.now())
    return end


def look(hv: Context, wait: Wait, so_far: News) -> News:
    """Add events since `so_far`; a single small query if there are none."""
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
    from hypervisor.batches.reduce import has_pending_reduce

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
    """A task that all waiting tasks of the batch depend on although it has ended without success;
    "" if some may still run."""
    waiting = hv.store.read(queries.list_tasks, TaskFilter((WAITING,), batch), MAX_SCANNED)
    blockers = [_blocker(hv, task.id) for task in waiting]
    return blockers[0] if all(blockers) else ""


def _blocker(hv: Context, task: str) -> str:
    """A task that this one needs, directly or not, and that has ended without being done."""
    checked, level = {task}, [task]
    while level:
        details = (hv.store.read(queries.detail, waiting) for waiting in level)
        needs = {need for detail in details for need in detail.waits_for} - checked
        states = hv.store.read(runs_sql.states, sorted(needs))
        for need, state in states.items():
            if state not in TO_RUN:
                return need
        checked |= needs
        level = [need for need, state in states.items() if state == WAITING][:MAX_SCANNED]
    return ""
