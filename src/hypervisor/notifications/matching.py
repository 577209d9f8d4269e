"""Making notices for the events that rules ask for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

from hypervisor.core.errors import NotFound
from hypervisor.notifications.notice import (
    CHECKPOINT,
    FINISHED,
    SETTLED,
    Notice,
    Rule,
    asks_for,
    of_checkpoint,
    of_ending,
    of_event,
    word_of,
)
from hypervisor.notifications.sql import notices
from hypervisor.queue.context import Context
from hypervisor.queue.event import Event
from hypervisor.queue.sql import queries
from hypervisor.queue.task import Task

PAGE = 500
MAX_UNSAVED = 5_000  # events without a notice that may have to be read again after a crash


Passed = dict[tuple[str, int], int]  # by a rule's name and creation time: the last event read


def collect(hv: Context, passed: Passed | None = None, pages: int | None = None) -> Passed:
    """Add a notice for every event that a rule asks for. Returns the last event read by rule;
    passed back as `passed`, that saves reading it again. A new rule has its own start."""
    rules = hv.store.read(notices.rules)
    if not rules:
        return {}
    kept = min(rule.seen for rule in rules)
    last = min(max(rule.seen, (passed or {}).get(_key(rule), 0)) for rule in rules)
    while pages is None or pages > 0:
        events = queries.events(hv.store, last, PAGE)
        if not events:
            break
        last = events[-1].seq
        new_notices = _notices(hv, rules, events)
        if new_notices or last - kept > MAX_UNSAVED:
            write = hv.store.write if new_notices else hv.store.write_unsynced
            write(notices.file, new_notices, rules, last)
            kept = last
        pages = None if pages is None else pages - 1
    return {_key(rule): last for rule in rules}


def _key(rule: Rule) -> tuple[str, int]:
    return rule.name, rule.created_at


def _notices(hv: Context, rules: list[Rule], events: list[Event]) -> list[Notice]:
    made = [*_of_events(hv, rules, events), *_of_endings(hv, rules, events)]
    return sorted(made, key=lambda notice: notice.number)


def _of_events(hv: Context, rules: list[Rule], events: list[Event]) -> Iterable[Notice]:
    asked = {word for rule in rules for word in rule.on}
    named = [(word, event) for event in events if (word := word_of(event)) in asked and word]
    tasks = _tasks(hv, {event.task for _, event in named if event.task})
    names = _Names(hv)
    for word, event in named:
        task = tasks.get(event.task)
        for rule in rules:
            if asks_for(rule, word, event, task.type if task else ""):
                yield of_event(rule, word, event, task, names[event.batch])


def _of_endings(hv: Context, rules: list[Rule], events: list[Event]) -> Iterable[Notice]:
    """The last of these events about a batch may have finished the batch or a chunk."""
    last = {event.batch: event for event in events if event.batch and event.state in SETTLED}
    names = _Names(hv)
    for batch, event in last.items():
        for rule in rules:
            if asks_for(rule, FINISHED, event, rule.type):
                ending = hv.store.read(notices.ending, batch, 0) if _is_run(hv, batch) else None
                if ending is not None:
                    yield of_ending(rule, event, ending, names[batch])
            if asks_for(rule, CHECKPOINT, event, rule.type):
                yield from _of_chunks(hv, rule, event, names[batch])


def _of_chunks(hv: Context, rule: Rule, event: Event, name: str) -> Iterable[Notice]:
    for chunk in hv.store.read(notices.open_chunks, event.batch):
        ending = hv.store.read(notices.ending, event.batch, chunk[0])
        if ending is not None:
            yield of_checkpoint(rule, event, chunk, ending, name)


def _is_run(hv: Context, batch: str) -> bool:
    with suppress(NotFound):  # deleted since
        return hv.store.read(queries.batch, batch).spec is not None
    return False


def _tasks(hv: Context, ids: set[str]) -> Mapping[str, Task]:
    return {task.id: task for task in hv.store.read(queries.tasks, sorted(ids))}


class _Names(dict[str, str]):
    """The names of batches by id, each looked up once."""

    def __init__(self, hv: Context) -> None:
        super().__init__({"": ""})
        self._hv = hv

    def __missing__(self, batch: str) -> str:
        name = batch  # of one that was deleted since, only the id is left
        with suppress(NotFound):
            name = self._hv.store.read(queries.batch, batch).name
        self[batch] = name
        return name
