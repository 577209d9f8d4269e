"""Chunks of a batch: declared before their tasks, held, opened, decided.

Opening a chunk promotes its tasks in the same transaction, so what may be
claimed is stored, never computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hypervisor.batches.chunk import FREE, HELD, OPEN, Chunk, ChunkState, first_state
from hypervisor.core.errors import NotFound, WrongState
from hypervisor.queue import lifecycle
from hypervisor.queue.lifecycle import UNFINISHED, state_name
from hypervisor.queue.result import corrected
from hypervisor.queue.sql import event_log, queries, readiness, receipts, steer
from hypervisor.queue.sql.settlement import SET_RESULT
from hypervisor.queue.task import Json, Task
from hypervisor.store.database import Session

if TYPE_CHECKING:
    from hypervisor.runs.spec import Gate

ALL = """
SELECT number, name, state, note, actor, decided_at FROM chunks WHERE batch = ? ORDER BY number
"""
COUNTS = """
SELECT chunk, state, count(*) FROM tasks WHERE batch = ? AND chunk > 0 GROUP BY chunk, state
"""
ADD = "INSERT INTO chunks (batch, number, name, state) VALUES (?, ?, ?, ?)"
OPEN_CHUNK = """
UPDATE chunks SET state = ?, note = ?, actor = ? WHERE batch = ? AND number = ? AND state = 'held'
RETURNING number
"""
RELEASE_TASKS = """
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
PAGE = "SELECT id FROM tasks WHERE batch = ? AND chunk = ? AND id > ? ORDER BY id LIMIT ?"
ONE = "SELECT 1 FROM tasks WHERE batch = ? AND chunk = ? AND id = ?"
STATE = "SELECT state, attempt FROM tasks WHERE id = ?"
OPEN_BATCHES = "SELECT DISTINCT batch FROM chunks WHERE state = 'open' ORDER BY batch"
RESULT = "SELECT result FROM details WHERE task = ?"
DATA = "SELECT data FROM details WHERE task = ?"
SET_DATA = "UPDATE details SET data = ? WHERE task = ?"
CORRECTED = "corrected"  # in a task's data: the attempt whose result a person has corrected


def declare(session: Session, batch: str, names: Sequence[str], gate: Gate) -> list[Chunk]:
    """The chunks of a batch, after adding those with new names at the end."""
    readiness.lock_chunks(session, batch)
    rows = session.rows(ALL, (batch,))
    names_before = {row[1] for row in rows}
    states = [ChunkState(row[2]) for row in rows]
    new = [name for name in dict.fromkeys(names) if name not in names_before]
    for number, name in enumerate(new, max((row[0] for row in rows), default=0) + 1):
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


def page_of_chunk(session: Session, batch: str, number: int, after: str, limit: int) -> list[Task]:
    """Tasks of a chunk in the order of their ids."""
    rows = session.rows(PAGE, (batch, number, after, limit))
    return queries.tasks(session, [row[0] for row in rows])


def one_of_chunk(session: Session, batch: str, number: int, task: str) -> Task | None:
    if not session.rows(ONE, (batch, number, task)):
        return None
    return queries.task(session, task)


def _task_ids(session: Session, batch: str, number: int) -> list[str]:
    return [row[0] for row in session.rows(TASKS, (batch, number))]


def batches_with_open(session: Session) -> list[str]:
    return [row[0] for row in session.rows(OPEN_BATCHES)]


def amend(
    session: Session,
    task: str,
    changes: dict[str, Any],
    actor: str,
    now: int,
    *,
    check: Callable[[Task], None] = lambda task: None,
) -> Json:
    """Change members of a task's result. Returns the new result. `check` raises if the task is not
    what the correction is about."""
    state, attempt = session.rows(STATE + session.for_update, (task,))[0]
    if state != lifecycle.DONE:
        raise WrongState(f"{task} is {state_name(state)}: no result to correct yet.")
    check(queries.task(session, task))
    before = event_log.load(session.rows(RESULT, (task,))[0][0])  # once the task is locked
    result, receipt = corrected(before, changes)
    session.run(SET_RESULT, (event_log.dump(result), task))
    _change_data(session, task, {CORRECTED: attempt})
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
    check: Callable[[Session, Chunk], None] = lambda session, chunk: None,
) -> list[int]:
    """Approve or reject a finished chunk and release the next one; with `in_advance`, all held
    chunks, which then need no decision. Returns the released ones.

    An earlier decision is only changed with `may_change`, which releases nothing. `check` raises
    if the chunk is not what the decision is about."""
    readiness.lock_chunks(session, batch)
    session.lock("keys")  # before any row is locked, as in a claim
    chunk = find(session, batch, number)
    if chunk.state == HELD or chunk.unfinished:
        verb = "is" if chunk.unfinished == 1 else "are"
        unfinished = f"{chunk.unfinished} of its {chunk.total} tasks {verb} not finished"
        raise WrongState(
            f"chunk {number} cannot be {decision} yet: {unfinished}. Nothing was changed."
        )
    if chunk.is_decided and not may_change:
        raise WrongState(f"chunk {number} is already {chunk.state}. Nothing was changed.")
    check(session, chunk)
    session.run(DECIDE, (decision, note or None, actor, now, batch, number))
    held_numbers = [other.number for other in every(session, batch) if other.state == HELD]
    further = (held_numbers if in_advance else held_numbers[:1]) if chunk.state == OPEN else []
    values = (FREE, f"freed with chunk {number}", actor) if in_advance else (OPEN, None, None)
    opened = [other for other in further if _open(session, batch, other, values, now)]
    more: dict[str, object] = {"opened": opened, "all": in_advance}
    _log(session, chunk, decision, note, actor=actor, now=now, more=more)
    return opened


def retry(
    session: Session,
    batch: str,
    number: int,
    task_ids: Sequence[str],
    note: str,
    *,
    actor: str,
    now: int,
    check: Callable[[Session, Chunk], None] = lambda session, chunk: None,
) -> int:
    """Retry these tasks of a chunk, with the note in their data; if none are named, all except for
    those that a person has corrected. Returns how many. `check` raises as in `decide`."""
    readiness.lock_chunks(session, batch)
    session.lock("keys")
    chunk = find(session, batch, number)
    if chunk.state == HELD:
        raise WrongState(f"chunk {number} has not run yet. Nothing was changed.")
    check(session, chunk)
    own = chunk_tasks(session, batch, number)
    chosen = [
        task.id for task in own if (task.id in task_ids if task_ids else not is_corrected(task))
    ]
    to_retry = [task for task in chosen if _has_ended(session, task)]
    for task in to_retry:
        _change_data(session, task, {"note": note or None, CORRECTED: None})
        steer.requeue(session, task, "reopen", note, actor, now=now)
    session.run(REOPEN, (note or None, actor, batch, number))
    _log(session, chunk, "retry", note, actor=actor, now=now, more={"tasks": len(to_retry)})
    return len(to_retry)


def _has_ended(session: Session, task: str) -> bool:
    return session.rows(STATE + session.for_update, (task,))[0][0] not in UNFINISHED


def is_corrected(task: Task) -> bool:
    """Whether a person has corrected the result of the last attempt."""
    return isinstance(task.data, dict) and task.data.get(CORRECTED) == task.attempts


def _change_data(session: Session, task: str, changes: dict[str, Any]) -> None:
    """Set members of a task's data, or remove them by None."""
    data = event_log.load(session.rows(DATA, (task,))[0][0])
    data = {} if data is None else data
    if isinstance(data, dict):
        data = {name: value for name, value in {**data, **changes}.items() if value is not None}
        session.run(SET_DATA, (event_log.dump(data), task))


def _open(
    session: Session,
    batch: str,
    number: int,
    values: tuple[str, str | None, str | None],
    now: int,
) -> bool:
    if not session.rows(OPEN_CHUNK, (*values, batch, number)):
        return False
    freed = sorted(row[0] for row in session.rows(RELEASE_TASKS, (batch, number)))
    readiness.promote(session, freed, now)
    return True


def find(session: Session, batch: str, number: int) -> Chunk:
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
    words = "to be retried" if decision == "retry" else decision
    text = f"{chunk.label} {words}: {note}" if note else f"{chunk.label} {words}"
    receipts.append_to_batch(session, chunk.batch, actor, [text], now)
    data = {"chunk": chunk.number, "decision": decision, "message": text, **more}
    event_log.note(session, "checkpoint", data, actor, now, batch=chunk.batch)
