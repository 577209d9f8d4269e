"""Rules and their notices, pending and failed.

The last event read is stored with each rule and moves in the same transaction
that adds its notices: none is lost, and none is added twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypervisor.core.errors import WrongState
from hypervisor.notifications.notice import (
    MAX_WAIT,
    OTHER_NAMES,
    Ending,
    Notice,
    NoticeState,
    Rule,
    wait_after,
)
from hypervisor.queue.event import current_data
from hypervisor.queue.lifecycle import UNFINISHED
from hypervisor.queue.sql import event_log
from hypervisor.store.database import Row, Session

RULE = """
SELECT name, words, batch, type, command, cwd, tries, seen, failures, due_at, created_at
FROM rules
"""
ADD_RULE = """
INSERT INTO rules (name, words, batch, type, command, cwd, tries, seen, created_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO NOTHING RETURNING name
"""
REMOVE_RULE = "DELETE FROM rules WHERE name = ? RETURNING batch"
SEEN = "SELECT name, seen FROM rules ORDER BY name"
MOVE = "UPDATE rules SET seen = ? WHERE name = ? AND created_at = ? AND seen < ?"
FILE = """
INSERT INTO notices (rule, number, what, mark, at, state, data) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING
"""
# One host at a time delivers for a rule. It may be the same host again, after a crash.
TAKE = """
UPDATE rules SET holder = ?, held_until = ?
WHERE name = ? AND (due_at <= ? OR due_at > ?) AND (holder = ? OR held_until <= ?)
    AND EXISTS (SELECT 1 FROM notices n WHERE n.rule = rules.name AND n.state = 'pending')
RETURNING name
"""
NOTICE = "SELECT rule, number, what, mark, at, data, state, tries, said FROM notices "
NEXT = NOTICE + ("WHERE rule = ? AND state = 'pending' ORDER BY number, what, mark LIMIT 1")
ONE = "WHERE rule = ? AND number = ? AND what = ? AND mark = ?"
# A notice with a mark stays, without its text, to recognize a duplicate.
SENT_ONE = "UPDATE notices SET state = 'sent', data = '{}', said = '' " + ONE
DELETE = "DELETE FROM notices " + ONE
RESET_FAILURES = "UPDATE rules SET failures = 0, due_at = 0 WHERE name = ? AND failures > 0"
MISSED = "UPDATE notices SET tries = tries + 1, said = ? " + ONE + " RETURNING tries"
GIVE_UP = "UPDATE notices SET state = 'failed' " + ONE
WAIT = "UPDATE rules SET failures = ?, due_at = ? WHERE name = ?"
LIST = NOTICE + "WHERE state = ? AND (? = '' OR rule = ?) ORDER BY rule, number, what, mark LIMIT ?"
RETRY = """
UPDATE notices SET state = 'pending', tries = 0 WHERE state = 'failed' AND (? = '' OR rule = ?)
RETURNING rule
"""
DROP = """
DELETE FROM notices WHERE state = 'failed' AND mark = '' AND (? = '' OR rule = ?) RETURNING rule
"""
DROP_MARKED = """
UPDATE notices SET state = 'sent', data = '{}' WHERE state = 'failed' AND (? = '' OR rule = ?)
RETURNING rule
"""
RESET_WAIT = "UPDATE rules SET failures = 0, due_at = 0 WHERE (? = '' OR name = ?)"
WAITING = """
SELECT n.rule, count(*), max(r.due_at) FROM notices n JOIN rules r ON r.name = n.rule
WHERE n.state = 'pending' GROUP BY n.rule
"""
# Cheap checks first: while a batch is running, one of these is true and nothing is counted.
READY = """
SELECT 1 FROM lanes l JOIN tasks t ON t.lane = l.id
WHERE l.batch = ? AND t.state = 'active' LIMIT 1
"""
BUSY = "SELECT 1 FROM tasks WHERE state = 'in_progress' AND deadline > 0 AND batch = ? LIMIT 1"
COUNTS = """
SELECT state, count(*), max(updated_at) FROM tasks
WHERE batch = ? AND batch <> '' GROUP BY state
"""
OPEN_CHUNKS = "SELECT number, name FROM chunks WHERE batch = ? AND state = 'open' ORDER BY number"
COUNTS_OF_CHUNK = """
SELECT state, count(*), max(updated_at) FROM tasks
WHERE batch = ? AND chunk = ? AND chunk > 0 GROUP BY state
"""


def add_rule(session: Session, rule: Rule, actor: str, now: int) -> None:
    command = event_log.dump(rule.command) if rule.command else None
    matches = (rule.name, ",".join(rule.on), rule.batch, rule.type)
    row = (*matches, command, rule.cwd, rule.tries, rule.seen, now)
    if not session.rows(ADD_RULE, row):
        raise WrongState(
            f"rule {rule.name!r} already exists. Nothing was changed; to remove it: hv notify rm "
            f"{rule.name}"
        )
    data = {"rule": rule.name, "on": rule.on}
    event_log.note(session, "rule", data, actor, now, batch=rule.batch)


def remove_rule(session: Session, name: str, actor: str, now: int) -> bool:
    for (batch,) in session.rows(REMOVE_RULE, (name,)):
        session.run("DELETE FROM notices WHERE rule = ?", (name,))
        event_log.note(session, "rule", {"rule": name, "removed": True}, actor, now, batch=batch)
        return True
    return False


def rules(session: Session) -> list[Rule]:
    return [_rule(row) for row in session.rows(RULE + "ORDER BY name")]


def file(session: Session, notices: Sequence[Notice], rules: Sequence[Rule], seen: int) -> int:
    """Add notices, after all events up to `seen` were read for these rules. Notices that another
    process has added since are left out. Returns how many were new."""
    before: dict[str, int] = dict(session.rows(SEEN + session.for_update))
    fresh = [notice for notice in notices if before.get(notice.rule, seen) < notice.number]
    rows = [
        (*_key(notice), notice.at, NoticeState.PENDING.value, event_log.dump(notice.data))
        for notice in fresh
    ]
    session.run_many(FILE, rows)
    session.run_many(MOVE, [(seen, rule.name, rule.created_at, seen) for rule in rules])
    return len(fresh)


def take(session: Session, rule: str, holder: str, until: int, now: int) -> Notice | None:
    """The next notice of a rule, if it is due and no other host is delivering for the rule."""
    if not session.rows(TAKE, (holder, until, rule, now, now + MAX_WAIT, holder, now)):
        return None
    return next((_notice(row) for row in session.rows(NEXT, (rule,))), None)


def sent(session: Session, notice: Notice) -> None:
    session.run(SENT_ONE if notice.mark else DELETE, _key(notice))
    session.run(RESET_FAILURES, (notice.rule,))


def missed(session: Session, notice: Notice, why: str, now: int) -> NoticeState:
    """Record a failed delivery. Returns the new state of the notice."""
    rules = session.rows(RULE + "WHERE name = ?" + session.for_update, (notice.rule,))
    tries = session.rows(MISSED, (why, *_key(notice)))
    if not rules or not tries:  # the rule has been removed since
        return NoticeState.SENT
    rule = _rule(rules[0])
    failures = rule.failures + 1
    session.run(WAIT, (failures, now + wait_after(failures), rule.name))
    if tries[0][0] < rule.tries:
        return NoticeState.PENDING
    session.run(GIVE_UP, _key(notice))
    text = f"{rule.name}: the notice of event {notice.number} was dropped: {why}"
    data = {"rule": rule.name, "message": text}
    event_log.note(session, "dead_letter", data, "", now, batch=rule.batch)
    return NoticeState.FAILED


def listed(session: Session, state: NoticeState, rule: str, limit: int) -> list[Notice]:
    return [_notice(row) for row in session.rows(LIST, (state.value, rule, rule, limit))]


def retry(session: Session, rule: str) -> int:
    session.run(RESET_WAIT, (rule, rule))
    return len(session.rows(RETRY, (rule, rule)))


def drop(session: Session, rule: str) -> int:
    return sum(len(session.rows(sql, (rule, rule))) for sql in (DROP, DROP_MARKED))


def waiting(session: Session) -> dict[str, tuple[int, int]]:
    """By rule: how many notices are pending, and when they may be tried."""
    return {row[0]: (int(row[1]), int(row[2])) for row in session.rows(WAITING)}


def ending(session: Session, batch: str, chunk: int) -> Ending | None:
    """The ending of a batch or chunk; None while it has unfinished tasks."""
    if not chunk and (session.rows(READY, (batch,)) or session.rows(BUSY, (batch,))):
        return None
    rows = session.rows(*((COUNTS_OF_CHUNK, (batch, chunk)) if chunk else (COUNTS, (batch,))))
    if not rows or any(state in UNFINISHED for state, _, _ in rows):
        return None
    states = {str(state): int(count) for state, count, _ in rows}
    mark = f"{batch} {chunk} {sum(states.values())} {max(row[2] for row in rows)}"
    return Ending(mark, states)


def open_chunks(session: Session, batch: str) -> list[tuple[int, str]]:
    """The numbers and names of the chunks that are running or waiting for a decision."""
    return [(int(number), str(name)) for number, name in session.rows(OPEN_CHUNKS, (batch,))]


def _rule(row: Row) -> Rule:
    name, words, batch, kind, command, *rest = row
    on = tuple(OTHER_NAMES.get(word, word) for word in words.split(","))
    return Rule(name, on, batch, kind, tuple(event_log.load(command) or ()), *rest)


def _notice(row: Row) -> Notice:
    rule, number, what, mark, at, data, state, *rest = row
    data = current_data(event_log.load(data))
    return Notice(rule, number, what, mark, at, data, NoticeState(state), *rest)


def _key(notice: Notice) -> tuple[Any, ...]:
    return notice.rule, notice.number, notice.what, notice.mark
