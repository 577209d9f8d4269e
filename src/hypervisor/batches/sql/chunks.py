"""Chunks of a batch: declared before their tasks, held, opened, decided.

Opening a chunk promotes its tasks in the same transaction, so what may be
claimed is stored, never computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypervisor.batches.chunk import FREE, HELD, OPEN, Chunk, ChunkState, first_state
from hypervisor.core.errors import NotFound, WrongState
from hypervisor.queue import lifecycle
from hypervisor.queue.lifecycle import UNFINISHED
from hypervisor.queue.result import corrected
from hypervisor.queue.sql import event_log, holds, queries, readiness, receipts, steer
from hypervisor.queue.sql.settlement import SET_RESULT
from hypervisor.queue.task import Json, Task
from hypervisor.store.database import Session

ALL = """
SELECT number, name, state, note, actor, decided_at FROM chunks WHERE batch = ? ORDER BY number
"""
COUNTS = """
SELECT chunk, state, count(*) FROM tasks WHERE batch = ? AND chunk > 0 GROUP BY chunk, state
"""
ADD = "INSERT INTO chunks (batch, number, name, state) VALUES (?, ?, ?, ?)"
LET_RUN = """
UPDATE chunks SET state = ?, note = ?, actor = ? WHERE batch = ? AND number = ? AND state = 'held'
RETURNING number
"""
LET_GO = """
UPDATE tasks SET held = 0 WHERE batch = ? AND chunk = ? AND chunk > 0 AND held = 1 RETURNING id
"""
DECIDE = """
UPDATE chunks SET state = ?, note = ?, actor = ?, decided_at = ? WHERE batch = ? AND number = ?
"""
REOPEN = """
UPDATE chunks SET state = 'open', note = ?, actor = ?, decided_at = NULL
WHERE batch = ? AND number = ?
"""
TASKS = "SELECT id FROM tasks WHERE batch = ? AND chunk = ? AND chunk > 0 ORDER BY id"
STATE = "SELECT state FROM tasks WHERE id = ?"
OPEN_BATCHES = "SELECT DISTINCT batch FROM chunks WHERE state = 'open' ORDER BY batch"
RESULT = "SELECT result FROM details WHERE task = ?"
DATA = "SELECT data FROM details WHERE task = ?"
SET_DATA = "UPDATE details SET data = ? WHERE task = ?"


def declare(session: Session, batch: str, names: Sequence[str], gate: str) -> list[Chunk]:
    """The chunks of a batch, with those of these names that are new put at its end."""
    holds.lock(session, batch)
    found = session.rows(ALL, (batch,))
    known = {row[1] for row in found}
    states = [ChunkState(row[2]) for row in found]
    new = [name for name in dict.fromkeys(names) if name not in known]
    for number, name in enumerate(new, max((row[0] for row in found), default=0) + 1):
        states.append(first_state(gate, states, is_last=name == new[-1]))
        session.run(ADD, (batch, number, name, states[-1]))
    return every(session, batch)


def every(session: Session, batch: str) -> list[Chunk]:
    counts: dict[int, dict[str, int]] = {}
    for number, state, count in session.rows(COUNTS, (batch,)):
        counts.setdefault(number, {})[state] = count
    return [
        Chunk(batch, number, name, ChunkState(state), note, actor, at, counts.get(number, {}))
        for number, name, state, note, actor, at in session.rows(ALL, (batch,))
    ]


def chunk_tasks(session: Session, batch: str, number: int) -> list[Task]:
    return queries.tasks(session, _task_ids(session, batch, number))


def _task_ids(session: Session, batch: str, number: int) -> list[str]:
    return [row[0] for row in session.rows(TASKS, (batch, number))]


def batches_with_open(session: Session) -> list[str]:
    return [row[0] for row in session.rows(OPEN_BATCHES)]


def amend(session: Session, task: str, changes: dict[str, Any], actor: str, now: int) -> Json:
    """Change members of a task's result. Returns the new result."""
    state = session.rows(STATE + session.for_update, (task,))[0][0]
    if state != lifecycle.DONE:
        raise WrongState(f"{task} is {state}: there is no result to correct yet.")
    before = event_log.load(session.rows(RESULT, (task,))[0][0])  # once the task is locked
    result, receipt = corrected(before, changes)
    session.run(SET_RESULT, (event_log.dump(result), task))
    receipts.append(session, task, actor, [receipt], now)
    return result


def decide(
    session: Session,
    batch: str,
    number: int,
    decision: ChunkState,
    *,
    note: str,
    in_advance: bool,
    may_change: bool,
    actor: str,
    now: int,
) -> list[int]:
    """Approve or reject a chunk that has ended, and let the next one go; `in_advance`, all that
    are held, none of which needs a decision any more. Returns those.

    A decision is changed only if it `may`, and that lets nothing go."""
    holds.lock(session, batch)
    session.lock("keys")  # before any row is locked, as in a claim
    chunk = _find(session, batch, number)
    if chunk.state == HELD or chunk.unfinished:
        left = f"{chunk.unfinished} of its {chunk.total} tasks are not finished"
        raise WrongState(f"chunk {number} cannot be {decision} yet: {left}. Nothing was changed.")
    if chunk.is_decided and not may_change:
        raise WrongState(f"chunk {number} is {chunk.state} by now. Nothing was changed.")
    session.run(DECIDE, (decision, note or None, actor, now, batch, number))
    held = [other.number for other in every(session, batch) if other.state == HELD]
    further = (held if in_advance else held[:1]) if chunk.state == OPEN else []
    how = (FREE, f"freed with chunk {number}", actor) if in_advance else (OPEN, None, None)
    opened = [other for other in further if _open(session, batch, other, how, now)]
    more: dict[str, object] = {"opened": opened, "all": in_advance}
    _log(session, chunk, decision, note, actor=actor, now=now, more=more)
    return opened


def retry(
    session: Session,
    batch: str,
    number: int,
    wanted: Sequence[str],
    note: str,
    *,
    actor: str,
    now: int,
) -> int:
    """Work on these tasks of a chunk again, with the note in their data. Returns how many."""
    holds.lock(session, batch)
    session.lock("keys")
    chunk = _find(session, batch, number)
    if chunk.state == HELD:
        raise WrongState(f"chunk {number} has not run yet. Nothing was changed.")
    own = set(_task_ids(session, batch, number))
    again = [task for task in wanted if task in own and _has_ended(session, task)]
    for task in again:
        _set_note(session, task, note)
        steer.requeue(session, task, "reopen", note, actor, now=now)
    session.run(REOPEN, (note or None, actor, batch, number))
    _log(session, chunk, "retry", note, actor=actor, now=now, more={"tasks": len(again)})
    return len(again)


def _has_ended(session: Session, task: str) -> bool:
    return session.rows(STATE + session.for_update, (task,))[0][0] not in UNFINISHED


def _set_note(session: Session, task: str, note: str) -> None:
    data = event_log.load(session.rows(DATA, (task,))[0][0])
    if isinstance(data, dict):
        kept = {name: value for name, value in data.items() if name != "note"}
        session.run(SET_DATA, (event_log.dump({**kept, "note": note} if note else kept), task))


def _open(
    session: Session,
    batch: str,
    number: int,
    how: tuple[str, str | None, str | None],
    now: int,
) -> bool:
    if not session.rows(LET_RUN, (*how, batch, number)):
        return False
    freed = sorted(row[0] for row in session.rows(LET_GO, (batch, number)))
    readiness.promote(session, freed, now)
    return True


def _find(session: Session, batch: str, number: int) -> Chunk:
    for chunk in every(session, batch):
        if chunk.number == number:
            return chunk
    raise NotFound(f"this batch has no chunk {number}.")


def _log(
    session: Session,
    chunk: Chunk,
    decision: str,
    note: str,
    *,
    actor: str,
    now: int,
    more: dict[str, object],
) -> None:
    what = "to be tried again" if decision == "retry" else decision
    text = f"{chunk.label} {what}: {note}" if note else f"{chunk.label} {what}"
    receipts.append_to_batch(session, chunk.batch, actor, [text], now)
    data = {"chunk": chunk.number, "decision": decision, "said": text, **more}
    event_log.note(session, "checkpoint", data, actor, now, batch=chunk.batch)
