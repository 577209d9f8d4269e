"""Ending attempts: one verdict per token, applied once.

The first verdict on a token decides; the same one again gets the first answer
and changes nothing; a token whose attempt ended differently is lost.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from hypervisor.core.records import NamedTuple
from hypervisor.queue import lifecycle
from hypervisor.queue.lease import AttemptResult, EndEvent, Holder, SettledResult, Token, Usage
from hypervisor.queue.lifecycle import is_poisoned
from hypervisor.queue.receipt import Entry
from hypervisor.queue.result import with_actions
from hypervisor.queue.sql import claims, event_log, exclusive_keys, readiness, receipts
from hypervisor.queue.sql.lanes import get_lane
from hypervisor.store.database import Row, Session, marks, pad, slices

ATTEMPTS = """
SELECT a.task, a.number, a.nonce, a.outcome, a.reason, a.worker, t.state, a.state_after, t.lane,
    t.failures, t.crashes, t.open_deps, t.attempt
FROM attempts a JOIN tasks t ON t.id = a.task
WHERE a.task IN ({}) ORDER BY a.task
"""
COUNTERS, EXPLANATION = "failures = ?, crashes = ?, ", "reason = ?, unblock = ?, "
END_TASKS = f"""
UPDATE tasks SET state = ?, {COUNTERS}start_at = ?, {EXPLANATION}deadline = NULL, updated_at = ?
WHERE id IN ({{}})
"""
END_ATTEMPTS = """
UPDATE attempts SET ended_at = ?, outcome = ?, state_after = ?, reason = ?
WHERE task IN ({}) AND ended_at IS NULL
"""
RETURNING_NEEDED = """
RETURNING task, EXISTS (SELECT 1 FROM dependencies d WHERE d.needs = attempts.task)
"""
IS_ACTIVE = "SELECT 1 FROM tasks WHERE id = ? AND state = 'active'"
SET_ACTIVE_AFTER = "UPDATE attempts SET state_after = 'active' WHERE task = ? AND number = ?"
USAGE = "exit_code = ?, cpu_ms = ?, peak_kb = ?, output_bytes = ?"
SET_USAGE = f"UPDATE attempts SET {USAGE} WHERE task = ? AND number = ?"
SET_RESULT = "UPDATE details SET result = ? WHERE task = ?"

SUBMIT = """
INSERT INTO submissions (task, attempt, batch, at) VALUES (?, ?, ?, ?)
ON CONFLICT (task) DO UPDATE SET attempt = excluded.attempt, at = excluded.at
"""
ANY_SUBMITTED = "SELECT 1 FROM submissions LIMIT 1"

OUTCOMES = {
    "complete": "done",
    "submit": "done",
    "fail": "failed",
    "back_off": "failed",
    "block": "blocked",
    "release": "released",
    "crash": "crashed",
    "poison": "crashed",
    "cancel": "cancelled",
}


class _Ending(NamedTuple):
    """An attempt that is ending, and the new state of its task."""

    verdict: AttemptResult
    actor: str
    batch: str
    keyed: bool
    state: str
    failures: int
    crashes: int


def settle(
    session: Session,
    verdicts: Sequence[AttemptResult],
    now: int,
    check: Callable[[Session, str], bool] | None = None,
) -> list[SettledResult]:
    """Apply verdicts, each by itself, and answer in their order; none if `check` returns False for
    one of their batches."""
    answers: dict[int, SettledResult] = {}
    endings: dict[int, _Ending] = {}
    attempts = _attempts(session, verdicts)
    if check is not None:
        for row in attempts.values():
            if not check(session, get_lane(session, row[8]).batch):
                return []
    seen: dict[str, int] = {}
    for index, verdict in enumerate(verdicts):
        row = attempts.get((verdict.token.task, verdict.token.attempt))
        if row is None or not verdict.token.matches(row[2]):
            answers[index] = _lost(verdict, "no such claim")
        elif row[3] is not None:
            answers[index] = _repeated(verdict, row)
        elif verdict.token.task in seen:
            answers[index] = _repeated_in_call(verdict, endings[seen[verdict.token.task]])
        else:
            seen[verdict.token.task] = index
            endings[index] = _ending(session, _with_proposals(session, verdict), row)
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
    """End a live attempt without its holder: it died, or a person (`actor`) decided so."""
    for row in _locked(session, [task]):
        if row[1] == attempt and row[3] is None:
            verdict = AttemptResult(Token(task, attempt, row[2]), event, reason=reason)
            ending = _ending(session, verdict, row)
            apply(session, [ending._replace(actor=actor or ending.actor)], now)
            return True
    return False


def reclaim(session: Session, holder: Holder, reason: str, now: int, started: bool = True) -> bool:
    """Put a dead worker's task back. False if the claim has ended or been renewed since. An
    attempt that had not `started` is not counted as a crash. A task with which one host after
    another was lost fails, before it brings down all of them."""
    if not claims.unchanged(session, holder):
        return False
    event: EndEvent = "crash" if started else "release"
    if holder.host_state == "gone" and holder.attempt >= lifecycle.LOST_HOSTS_LIMIT:
        lost = claims.hosts_lost_with(session, holder.task, holder.attempt)
        if len(lost) >= lifecycle.LOST_HOSTS_LIMIT:
            names = ", ".join(sorted({*lost.values()})[:10])
            event = "poison"
            reason = f"poisoned: {len(lost)} hosts in a row were lost with it ({names})"
    return end_without_token(session, holder.task, holder.attempt, event, reason, now=now)


def apply(session: Session, endings: list[_Ending], now: int) -> set[str]:
    """Store the endings. Returns the waiting tasks that became active at once."""
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
    submitted = [
        (e.verdict.token.task, e.verdict.token.attempt, e.batch, now)
        for e in endings
        if e.verdict.event == "submit"
    ]
    if submitted:
        session.run_many(SUBMIT, submitted)
    event_log.write(session, now, [_line(e) for e in endings])
    _keep_evidence(session, endings, now)
    requeued = _requeue_keyed(session, endings, now)
    done = [task for task in needed if needed[task] == lifecycle.DONE]
    for part in slices(done):
        readiness.dependency_done(session, part, now)
    return requeued


def any_submitted(session: Session) -> bool:
    """Whether any task is merging."""
    return bool(session.rows(ANY_SUBMITTED))


def set_usage(session: Session, token: Token, usage: Usage) -> None:
    """Record the usage of an attempt that has already ended."""
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
    return {(row[0], row[1]): row for part in slices(tasks) for row in _locked(session, part)}


def _locked(session: Session, tasks: Sequence[str]) -> list[Row]:
    """The attempts of these tasks, once the tasks are locked. PostgreSQL may have read the
    attempts before it got the lock, when one that another process has just ended was still open."""
    sql, values = ATTEMPTS.format(marks(len(tasks))), pad(tasks)
    rows = session.rows(sql + session.wait_locked, values)
    if not session.wait_locked:  # SQLite has one writer
        return rows
    is_old = any(
        outcome is None and (state != lifecycle.IN_PROGRESS or number != latest)
        for _, number, _, outcome, _, _, state, *_, latest in rows
    )
    return session.rows(sql, values) if is_old else rows


def _with_proposals(session: Session, verdict: AttemptResult) -> AttemptResult:
    """The verdict with the claim's proposals. The task is locked, so none can be added."""
    if not verdict.proposals:
        return verdict
    from hypervisor.queue.sql import proposals

    proposed = proposals.take(session, verdict.token)
    return verdict._replace(result=with_actions(verdict.result, proposed))


def _ending(session: Session, verdict: AttemptResult, row: Any) -> _Ending:
    lane = get_lane(session, row[8])
    event, failures, crashes = verdict.event, row[9], row[10]
    if event == "complete" and lane.merges:
        event = "submit"
        verdict = verdict._replace(event=event)
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
    """One UPDATE for all tasks that end the same way. Returns the states of those with
    dependents."""
    needed: dict[str, str] = {}
    groups: dict[tuple[Any, ...], list[str]] = defaultdict(list)
    for e in endings:
        v = e.verdict
        after = (e.state, e.failures, e.crashes, v.retry_at, v.reason, v.unblock)
        groups[(*after, OUTCOMES[v.event])].append(v.token.task)
    for values, tasks in groups.items():
        after, outcome = values[:-1], values[-1]
        for part in slices(tasks):
            where = marks(len(part))
            rows = session.together(
                [
                    (END_TASKS.format(where), [*after, now, *pad(part)]),
                    (
                        END_ATTEMPTS.format(where) + RETURNING_NEEDED,
                        [now, outcome, after[0], after[4], *pad(part)],
                    ),
                ]
            )
            needed.update({task: after[0] for task, has_dependents in rows if has_dependents})
    return needed


def _requeue_keyed(session: Session, endings: list[_Ending], now: int) -> set[str]:
    """Release the keys to the best queued tasks; a task that goes back may be one of them."""
    active: set[str] = set()
    for e in endings:
        if e.keyed:
            task = e.verdict.token.task
            freed = exclusive_keys.drop(session, task)
            if e.state == lifecycle.WAITING:
                exclusive_keys.enqueue(session, task)
            exclusive_keys.offer(session, freed, now)
            if e.state == lifecycle.WAITING and session.rows(IS_ACTIVE, (task,)):
                session.run(SET_ACTIVE_AFTER, (task, e.verdict.token.attempt))
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


def _answer(e: _Ending) -> SettledResult:
    v = e.verdict
    return SettledResult(str(v.token), v.token.task, e.state, OUTCOMES[v.event], repeated=False)


def _repeated(verdict: AttemptResult, row: Any) -> SettledResult:
    """The attempt has already ended: the same verdict is answered again, another one is lost."""
    outcome, state = row[3], row[7]
    if outcome != OUTCOMES[verdict.event]:
        return _lost(verdict, f"it was {outcome}" + (f" ({row[4]})" if row[4] else ""))
    return SettledResult(str(verdict.token), verdict.token.task, state, outcome, repeated=True)


def _repeated_in_call(verdict: AttemptResult, first: _Ending) -> SettledResult:
    if OUTCOMES[verdict.event] != OUTCOMES[first.verdict.event]:
        return _lost(verdict, f"it was {OUTCOMES[first.verdict.event]} in the same call")
    return _answer(first)._replace(repeated=True)


def _lost(verdict: AttemptResult, why: str) -> SettledResult:
    return SettledResult(str(verdict.token), verdict.token.task, "", "", repeated=False, lost=why)
