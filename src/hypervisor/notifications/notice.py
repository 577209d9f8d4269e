"""Rules say which events to notify about; a notice is one such message.

Pure: the name of an event in rules, whether a rule asks for it, the text of
the message, and how long to wait after a failed delivery.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from hypervisor.core.records import NamedTuple
from hypervisor.queue import lifecycle
from hypervisor.queue.lifecycle import state_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hypervisor.queue.event import Event
    from hypervisor.queue.task import Task

FINISHED, CHECKPOINT = "finished", "checkpoint"
WORDS = {
    "done": "a task is done",
    "failed": "a task failed",
    "blocked": "a worker is blocked: it needs an answer or other help",
    lifecycle.REVIEW: "a task is in review: its work cannot be merged without a person",
    CHECKPOINT: "a chunk is waiting for a decision",
    "budget": "a budget is nearly or fully used up",
    "cooldown": "an agent's account is rate-limited, or its provider is down",
    FINISHED: "a batch has finished",
}
OTHER_NAMES = {"brake": "cooldown", "rate_limit": "cooldown", "rate-limit": "cooldown"}
OF_TASKS = (lifecycle.DONE, lifecycle.FAILED, lifecycle.BLOCKED, lifecycle.REVIEW)
# When a task enters one of these states, its batch or chunk may have finished.
SETTLED = (*lifecycle.TERMINAL, lifecycle.BLOCKED, lifecycle.REVIEW)

MAX_TRIES = 10
FIRST_WAIT = 1_000
MAX_WAIT = 600_000
MAX_SUMMARY_LENGTH = 1_000
MAX_DATA = 8_000


class NoticeState(StrEnum):
    PENDING = "pending"
    SENT = "sent"
    FAILED = "failed"  # a dead letter


class Rule(NamedTuple):
    """Which events go to which receiver. Without a command there is an address, kept outside the
    store."""

    name: str
    on: tuple[str, ...]
    batch: str = ""
    type: str = ""
    command: tuple[str, ...] = ()
    cwd: str = ""
    tries: int = MAX_TRIES
    seen: int = 0  # the number of the last event that was read for it
    failures: int = 0  # in a row
    due_at: int = 0  # no delivery before then
    created_at: int = 0


class Notice(NamedTuple):
    """One message for one rule. `mark` identifies notices without an event of their own, so that
    each finish of a batch is reported once."""

    rule: str
    number: int  # of the event that it is about
    what: str
    mark: str
    at: int
    data: dict[str, Any]
    state: NoticeState = NoticeState.PENDING
    tries: int = 0
    error: str = ""  # why it could not be delivered


class Ending(NamedTuple):
    """A batch with nothing left to do; `mark` differs each time that happens."""

    mark: str
    states: dict[str, int]


def word_of(event: Event) -> str | None:
    """The name of an event in rules, None if no rule can ask for it."""
    if event.task and event.state in OF_TASKS:
        return event.state
    if event.kind in ("budget", "cooldown"):
        return event.kind
    return None


def asks_for(rule: Rule, word: str, event: Event, kind: str) -> bool:
    """Whether a rule wants that event; `kind` is the type of its task, "" without one."""
    return (
        word in rule.on
        and rule.seen < event.seq
        and rule.batch in ("", event.batch)
        and rule.type in ("", kind)
    )


def of_event(rule: Rule, word: str, event: Event, task: Task | None, batch: str) -> Notice:
    """`batch` is the name of the event's batch."""
    fields = event.data if isinstance(event.data, dict) else {}
    why = str(fields.get("message") or fields.get("reason") or "")
    subject = task.title if task is not None else ""
    text = ": ".join(part for part in (word if subject else "", subject, why) if part) or word
    if word == lifecycle.REVIEW:
        text = f"{subject} is waiting for your decision (hv show {event.task}): {why}"
    if word == lifecycle.BLOCKED:
        text = _question(event, fields, subject) or text
    details = {
        "kind": event.kind,
        "task": event.task,
        "title": subject,
        "type": task.type if task is not None else "",
        "attempt": event.attempt,
        "state": event.state,
        "actor": event.actor,
        "data": event.data if len(str(event.data)) <= MAX_DATA else None,
    }
    return _notice(rule, word, event, text=text, batch=batch, more=details)


def _question(event: Event, fields: Mapping[str, Any], subject: str) -> str:
    """What a blocked task asks, and how to answer; "" if it asks nothing."""
    from hypervisor.queue.message import NEEDS_INPUT, question_in

    question = question_in(fields.get("unblock"), fields.get("reason"))
    if not question:
        return ""
    return f"{NEEDS_INPUT}: {subject or event.task}: {question} (hv answer {event.task} 'TEXT')"


def of_ending(rule: Rule, event: Event, ending: Ending, batch: str) -> Notice:
    counts = ", ".join(
        f"{count} {state_name(state)}" for state, count in sorted(ending.states.items())
    )
    text = f"batch {batch} finished: {counts}"
    details = {"states": ending.states}
    return _notice(rule, FINISHED, event, text=text, batch=batch, more=details, mark=ending.mark)


def of_checkpoint(
    rule: Rule, event: Event, chunk: tuple[int, str], ending: Ending, batch: str
) -> Notice:
    """`chunk` is the number and the name of the chunk that has ended."""
    number, name = chunk
    label = f"chunk {number}" if name == str(number) else f"chunk {number} ({name})"
    text = f"{label} of batch {batch} is waiting for your decision: hv review {batch}"
    details = {"chunk": number, "states": ending.states}
    return _notice(rule, CHECKPOINT, event, text=text, batch=batch, more=details, mark=ending.mark)


def trial(rule: Rule, at: int) -> Notice:
    """A test message."""
    text = f"this is a test of the rule {rule.name}"
    data = {"what": "test", "message": text, "rule": rule.name, "number": 0, "at": at}
    return Notice(rule.name, 0, "test", "", at, {**data, "batch": "", "task": ""})


def wait_after(failures: int) -> int:
    """Milliseconds to wait after this many failed deliveries in a row."""
    return min(FIRST_WAIT << min(failures - 1, 30), MAX_WAIT)


def is_due(due_at: int, now: int) -> bool:
    """Whether it may be tried. A time further away than any wait means that the clock was set
    back."""
    return due_at <= now or due_at > now + MAX_WAIT


def _notice(
    rule: Rule,
    word: str,
    event: Event,
    *,
    text: str,
    batch: str,
    more: Mapping[str, Any],
    mark: str = "",
) -> Notice:
    data = {
        "what": word,
        "message": text[:MAX_SUMMARY_LENGTH],
        "rule": rule.name,
        "number": event.seq,
        "at": event.at,
        "batch": batch,
        **more,
    }
    return Notice(rule.name, event.seq, word, mark, event.at, data)
