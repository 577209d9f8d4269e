"""Ending attempts: one verdict per token, applied once.

The first verdict on a token decides; the same token again gets that first
answer and changes nothing; a token whose attempt ended otherwise is lost.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from hypervisor.queue import lifecycle
from hypervisor.queue.lease import AttemptResult, EndEvent, Holder, Settled, Token, Usage
from hypervisor.queue.receipt import Entry
from hypervisor.queue.result import with_actions
from hypervisor.queue.retry import is_poisoned
from hypervisor.queue.sql import claims, event_log, exclusive_keys, proposals, readiness, receipts
from hypervisor.queue.sql.lanes import get_lane
from hypervisor.store.database import Row, Session, marks, pad, slices

ATTEMPTS = """
SELECT a.task, a.number, a.nonce, a.outcome, a.reason, a.worker, t.state, a.state_after, t.lane,
    t.failures, t.crashes, t.open_deps, t.attempt
FROM attempts a JOIN tasks t ON t.id = a.task
WHERE a.task IN ({}) ORDER BY a.task
"""
FAULTS, WORDS = "failures = ?, crashes = ?, ", "reason = ?, unblock = ?, "
END_TASKS = f"""
UPDATE tasks SET state = ?, {FAULTS}start_at = ?, {WORDS}deadline = NULL, updated_at = ?
WHERE id IN ({{}})
"""
END_ATTEMPTS = """
UPDATE attempts SET ended_at = ?, outcome = ?, state_after = ?, reason = ?
WHERE task IN ({}) AND ended_at IS NULL
"""
TELL_NEEDED = """
RETURNING task, EXISTS (SELECT 1 FROM dependencies d WHERE d.needs = attempts.task)
"""
IS_ACTIVE = "SELECT 1 FROM tasks WHERE id = ? AND state = 'active'"
LEFT_ACTIVE = "UPDATE attempts SET state_after = 'active' WHERE task = ? AND number = ?"
USAGE = "exit_code = ?, cpu_ms = ?, peak_kb = ?, output_bytes = ?"
SET_USAGE = f"UPDATE attempts SET {USAGE} WHERE task = ? AND number = ?"
SET_RESULT = "UPDATE details SET result = ? WHERE task = ?"

OUTCOMES = {
    "complete": "done",
    "fail": "failed",
    "back_off": "failed",
    "block": "blocked",
    "release": "released",
    "crash": "crashed",
    "poison": "crashed",
    "cancel": "cancelled",
}


class _Ending(NamedTuple):
    """One attempt about to end, with what becomes of its task."""

    verdict: AttemptResult
    actor: str
    batch: str
    keyed: bool
    state: str
    failures: int
    crashes: int


def settle(session: Session, verdicts: Sequence[AttemptResult], now: int) -> list[Settled]:
    """Apply verdicts, each on its own merits, and answer in their order."""
    answers: dict[int, Settled] = {}
    endings: dict[int, _Ending] = {}
    found = _attempts(session, verdicts)
    seen: dict[str, int] = {}
    for index, verdict in enumerate(verdicts):
        row = found.get((verdict.token.task, verdict.token.attempt))
        if row is None or not verdict.token.fits(row[2]):
            answers[index] = _lost(verdict, "no such claim")
        elif row[3] is not None:
            answers[index] = _again(verdict, row)
        elif verdict.token.task in seen:
            answers[index] = _again_in_call(verdict, endings[seen[verdict.token.task]])
        else:
            seen[verdict.token.task] = index
            endings[index] = _ending(session, _whole(session, verdict), row)
            answers[index] = _answer(endings[index])
    active = apply(session, list(endings.values()), now)
    tokens = {str(verdicts[seen[task]].token) for task in active}
    return [
        answer._replace(state=lifecycle.ACTIVE)
        if answer.token in tokens and not answer.lost
        else answer
        for _, answer in sorted(answers.items())
    ]


def end_without_token(
    session: Session,
    task: str,
    attempt: int,
    event: EndEvent,
    reason: str,
    *,
    now: int,
    actor: str | None = None,
) -> bool:
    """End a live attempt on others' authority: its holder died, or a person (`actor`) decided."""
    for row in _locked(session, [task]):
        if row[1] == attempt and row[3] is None:
            verdict = AttemptResult(Token(task, attempt, row[2]), event, reason=reason)
            ending = _ending(session, verdict, row)
            apply(session, [ending._replace(actor=actor or ending.actor)], now)
            return True
    return False


def reclaim(session: Session, holder: Holder, reason: str, now: int, started: bool = True) -> bool:
    """Put a dead worker's task back. False if the claim has ended or been renewed meanwhile.
    An attempt that had not even `started` costs the task nothing."""
    if not claims.unchanged(session, holder):
        return False
    event: EndEvent = "crash" if started else "release"
    return end_without_token(session, holder.task, holder.attempt, event, reason, now=now)


def apply(session: Session, endings: list[_Ending], now: int) -> set[str]:
    """Write the endings down. Returns the waiting tasks that could become active at once."""
    if not endings:
        return set()
    needed = _end_tasks(session, endings, now)
    results = [
        (event_log.dump(e.verdict.result), e.verdict.token.task)
        for e in endings
        if e.verdict.result is not None
    ]
    if results:
        session.run_many(SET_RESULT, results)
    usages = [
        (*e.verdict.usage, e.verdict.token.task, e.verdict.token.attempt)
        for e in endings
        if e.verdict.usage is not None
    ]
    if usages:
        session.run_many(SET_USAGE, usages)
    event_log.write(session, now, [_line(e) for e in endings])
    _keep_evidence(session, endings, now)
    requeued = _requeue_keyed(session, endings, now)
    done = [task for task in needed if needed[task] == lifecycle.DONE]
    for some in slices(done):
        readiness.dependency_done(session, some, now)
    return requeued


def set_usage(session: Session, token: Token, usage: Usage) -> None:
    """What an attempt cost whose end was told before that was known."""
    session.run(f"{SET_USAGE} AND nonce = ?", (*usage, *token))


def _keep_evidence(session: Session, endings: list[_Ending], now: int) -> None:
    by_chain: dict[str, list[Entry]] = defaultdict(list)
    for e in endings:
        task, attempt, _ = e.verdict.token
        by_chain[e.batch or task] += [
            Entry(task, attempt, e.actor, text) for text in e.verdict.receipts
        ]
    for chain in sorted(by_chain):
        receipts.append_entries(session, chain, by_chain[chain], now)


def _attempts(session: Session, verdicts: Sequence[AttemptResult]) -> dict[tuple[str, int], Any]:
    tasks = sorted({verdict.token.task for verdict in verdicts})
    return {(row[0], row[1]): row for some in slices(tasks) for row in _locked(session, some)}


def _locked(session: Session, tasks: Sequence[str]) -> list[Row]:
    """The attempts of these tasks, once the tasks are locked. PostgreSQL may have read the
    attempts before it got the lock, when one that somebody else has just ended was still open."""
    sql, values = ATTEMPTS.format(marks(len(tasks))), pad(tasks)
    rows = session.rows(sql + session.wait_locked, values)
    is_old = any(
        outcome is None and (state != lifecycle.IN_PROGRESS or number != latest)
        for _, number, _, outcome, _, _, state, *_, latest in rows
    )
    return session.rows(sql, values) if is_old else rows


def _whole(session: Session, verdict: AttemptResult) -> AttemptResult:
    """The verdict with what was proposed before it. Its task is locked: nothing can be added."""
    if not verdict.proposals:
        return verdict
    proposed = proposals.take(session, verdict.token)
    return verdict._replace(result=with_actions(verdict.result, proposed))


def _ending(session: Session, verdict: AttemptResult, row: Any) -> _Ending:
    lane = get_lane(session, row[8])
    event, failures, crashes = verdict.event, row[9], row[10]
    if event in ("fail", "back_off"):
        failures += 1
    if event == "crash":
        crashes += 1
        if is_poisoned(crashes):
            event = "poison"
            reason = f"poisoned: the worker died on it {crashes} times; last: {verdict.reason}"
            verdict = verdict._replace(event=event, reason=reason)
    state = lifecycle.next_state(row[6], event, verdict.token.task)
    if state == lifecycle.QUEUE:
        state = lifecycle.queue_state(row[11], verdict.retry_at, lane.keyed)
    return _Ending(verdict, row[5], lane.batch, lane.keyed, state, failures, crashes)


def _end_tasks(session: Session, endings: list[_Ending], now: int) -> dict[str, str]:
    """One UPDATE for all tasks that end alike. Returns those that others wait for, by state."""
    needed: dict[str, str] = {}
    alike: dict[tuple[Any, ...], list[str]] = defaultdict(list)
    for e in endings:
        v = e.verdict
        after = (e.state, e.failures, e.crashes, v.retry_at, v.reason, v.unblock)
        alike[(*after, OUTCOMES[v.event])].append(v.token.task)
    for values, tasks in alike.items():
        after, outcome = values[:-1], values[-1]
        for some in slices(tasks):
            where = marks(len(some))
            rows = session.together(
                [
                    (END_TASKS.format(where), [*after, now, *pad(some)]),
                    (
                        END_ATTEMPTS.format(where) + TELL_NEEDED,
                        [now, outcome, after[0], after[4], *pad(some)],
                    ),
                ]
            )
            needed.update({task: after[0] for task, has_dependents in rows if has_dependents})
    return needed


def _requeue_keyed(session: Session, endings: list[_Ending], now: int) -> set[str]:
    """Free the keys for the best in line; a task that goes back into the queue is one of them."""
    active: set[str] = set()
    for e in endings:
        if e.keyed:
            task = e.verdict.token.task
            freed = exclusive_keys.drop(session, task)
            if e.state == lifecycle.WAITING:
                exclusive_keys.line_up(session, task)
            exclusive_keys.offer(session, freed, now)
            if e.state == lifecycle.WAITING and session.rows(IS_ACTIVE, (task,)):
                session.run(LEFT_ACTIVE, (task, e.verdict.token.attempt))
                active.add(task)
    return active


def _line(e: _Ending) -> event_log.Line:
    v = e.verdict
    details = {"reason": v.reason, "unblock": v.unblock, "retry_at": v.retry_at}
    data = {name: value for name, value in details.items() if value is not None}
    return event_log.Line(
        v.event,
        v.token.task,
        e.batch,
        v.token.attempt,
        e.state,
        e.actor,
        event_log.dump(data or None),
    )


def _answer(e: _Ending) -> Settled:
    v = e.verdict
    return Settled(str(v.token), v.token.task, e.state, OUTCOMES[v.event], repeated=False)


def _again(verdict: AttemptResult, row: Any) -> Settled:
    """The attempt has ended. The same verdict again is answered, another one is lost."""
    outcome, state = row[3], row[7]
    if outcome != OUTCOMES[verdict.event]:
        return _lost(verdict, f"it was {outcome}" + (f" ({row[4]})" if row[4] else ""))
    return Settled(str(verdict.token), verdict.token.task, state, outcome, repeated=True)


def _again_in_call(verdict: AttemptResult, first: _Ending) -> Settled:
    if OUTCOMES[verdict.event] != OUTCOMES[first.verdict.event]:
        return _lost(verdict, f"it was {OUTCOMES[first.verdict.event]} in the same call")
    return _answer(first)._replace(repeated=True)


def _lost(verdict: AttemptResult, why: str) -> Settled:
    return Settled(str(verdict.token), verdict.token.task, "", "", repeated=False, lost=why)
