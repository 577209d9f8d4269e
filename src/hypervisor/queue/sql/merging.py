"""Tasks whose commits are to be merged: those `merging`, and those in `review` by a person.

What a merger does names the attempt whose commits it is about, and changes nothing once the task
has moved on: a merger may be late, or die and repeat what it did.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypervisor.core.records import NamedTuple
from hypervisor.queue import lifecycle
from hypervisor.queue.sql import event_log, readiness, settlement, steer
from hypervisor.queue.sql.lanes import get_lane
from hypervisor.queue.task import Json
from hypervisor.store.database import Row, Session

SUBMITTED = "SELECT task, batch, attempt, at FROM submissions ORDER BY at, task"
MARK = "SELECT count(*), coalesce(max(at), 0) FROM submissions"
STILL_SUBMITTED = "SELECT attempt FROM submissions WHERE task = ?"
SET_LANDING = "UPDATE submissions SET landing = ? WHERE task = ?"
KEEP_LANDING = """
INSERT INTO landings (task, attempt, hash, target, verified, at) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (task) DO UPDATE SET attempt = excluded.attempt, hash = excluded.hash,
    target = excluded.target, verified = excluded.verified, at = excluded.at
    WHERE excluded.attempt >= landings.attempt
"""
KEEP_UNCHANGED = KEEP_LANDING.replace(">=", ">")  # what this attempt has landed stays
LANDING = "SELECT hash, target, verified, at FROM landings WHERE task = ? AND attempt = ?"
FIND = "SELECT state, lane, batch, attempt, open_deps, held FROM tasks WHERE id = ?"
MOVE = "UPDATE tasks SET state = ?, reason = ?, unblock = NULL, updated_at = ? WHERE id = ?"


class Submission(NamedTuple):
    """An attempt whose commits are to be merged."""

    task: str
    batch: str
    attempt: int
    at: int


class Landing(NamedTuple):
    """Where the work of an attempt is; without a commit, it changed nothing. Not `verified`:
    nothing was set to verify it with."""

    commit: str
    target: str
    verified: bool
    at: int


class Decision(NamedTuple):
    """What happens to a task that is merging or in review, and who decided it."""

    event: str
    actor: str
    reason: str = ""
    data: Json = None  # of the event


def submitted(session: Session) -> list[Submission]:
    """The attempts of all tasks that are merging, in the order in which they were completed."""
    return [Submission(*row) for row in session.rows(SUBMITTED)]


def submitted_mark(session: Session) -> tuple[int, int]:
    """Differs once tasks have been submitted, or have left."""
    [(count, latest)] = session.rows(MARK)
    return count, latest


def still_submitted(session: Session, attempts: Sequence[tuple[str, int]]) -> list[str]:
    """Those of these tasks whose attempts are still to be merged."""
    return [
        task
        for task, attempt in attempts
        if [(attempt,)] == [tuple(row) for row in session.rows(STILL_SUBMITTED, (task,))]
    ]


def lock_submission(session: Session, task: str, attempt: int) -> bool:
    """Whether an attempt is still to be merged. Until the end of the transaction, nobody else
    decides about it."""
    rows = session.rows(STILL_SUBMITTED + session.for_update, (task,))
    return [(attempt,)] == [tuple(row) for row in rows]


def begin_landing(session: Session, attempts: Sequence[tuple[str, int]]) -> list[str]:
    """The point of no return: from here on these tasks cannot be cancelled. Returns those that
    are still to be merged; unless that is all of them, nothing begins."""
    session.lock("keys")  # as in a cancellation: either comes before the other
    wanted = still_submitted(session, attempts)
    if len(wanted) == len(attempts):
        session.run_many(SET_LANDING, [(1, task) for task in wanted])
    return wanted


def end_landing(session: Session, tasks: Sequence[str]) -> None:
    """It did not land: these tasks can be cancelled again."""
    session.run_many(SET_LANDING, [(0, task) for task in tasks])


def landing(session: Session, task: str, attempt: int) -> Landing | None:
    """Where an attempt has landed; None if it has not."""
    rows = session.rows(LANDING, (task, attempt))
    return Landing(rows[0][0], rows[0][1], bool(rows[0][2]), rows[0][3]) if rows else None


def merged(
    session: Session, task: str, attempt: int, data: Json, actor: str, *, now: int
) -> str | None:
    """Its commits have been merged: it is done, and its dependents may run. Returns
    the state; None if the task has moved on."""
    state = _of_merger(session, task, attempt, Decision("merge", actor, data=data), now)
    if state is not None:
        if isinstance(data, dict) and data.get("commit"):
            where = (data["commit"], data["target"], int(data["verified"]))
            session.run(KEEP_LANDING, (task, attempt, *where, now))
        else:
            changed_nothing(session, task, attempt, now=now)
        readiness.dependency_done(session, [task], now)
    return state


def changed_nothing(session: Session, task: str, attempt: int, *, now: int) -> None:
    """An attempt has ended, and there is nothing to merge."""
    session.run(KEEP_UNCHANGED, (task, attempt, "", "", 0, now))


def rework(
    session: Session, task: str, attempt: int, reason: str, actor: str, *, now: int
) -> str | None:
    """Its commits conflict or fail verification: work on it again. This counts neither as a
    failure nor as a crash."""
    if _of_merger(session, task, attempt, Decision("rework", actor, reason), now) is None:
        return None
    readiness.promote(session, [task], now)
    return str(session.rows(FIND, (task,))[0][0])


def to_review(
    session: Session, task: str, attempt: int, reason: str, actor: str, *, now: int
) -> str | None:
    """Its commits cannot be merged without a person."""
    return _of_merger(session, task, attempt, Decision("ask", actor, reason), now)


def approve(session: Session, task: str, reason: str, actor: str, *, now: int) -> str:
    """A person accepts what is in review: its commits are to be merged."""
    row = _find(session, task)
    state = _move(session, task, row, Decision("approve", actor, reason), now)
    session.run(settlement.SUBMIT, (task, row[3], row[2], now))
    return state


def land(session: Session, task: str, actor: str, *, now: int) -> str:
    """A person wants the commits of a finished task to be merged, here or somewhere else: what
    waits for it and has not started waits again."""
    row = _find(session, task)
    state = _move(session, task, row, Decision("land", actor), now)
    session.run(settlement.SUBMIT, (task, row[3], row[2], now))
    readiness.dependency_reopened(session, task, now)
    return state


def reject(session: Session, task: str, reason: str, actor: str, *, now: int) -> str:
    """A person rejects what is in review: the task has failed."""
    return _move(session, task, _find(session, task), Decision("reject", actor, reason), now)


def _of_merger(
    session: Session, task: str, attempt: int, decision: Decision, now: int
) -> str | None:
    row = _find(session, task)
    if (row[0], row[3]) != (lifecycle.MERGING, attempt):
        return None
    session.run(steer.FORGET_SUBMISSION, (task,))
    return _move(session, task, row, decision, now)


def _find(session: Session, task: str) -> Row:
    session.lock("keys")  # before any row is locked, as in a claim
    return session.rows(FIND + session.for_update, (task,))[0]


def _move(session: Session, task: str, row: Row, decision: Decision, now: int) -> str:
    before, lane, batch, attempt, open_deps, held = row
    event, actor, reason, data = decision
    state = lifecycle.next_state(before, event, task)
    if state == lifecycle.QUEUE:
        state = lifecycle.queue_state(open_deps, None, get_lane(session, lane).keyed, bool(held))
    session.run(MOVE, (state, None if event == "approve" else reason or None, now, task))
    data = data or ({"reason": reason} if reason else None)
    line = event_log.Line(event, task, batch, attempt, state, actor, event_log.dump(data))
    event_log.write(session, now, [line])
    return state
