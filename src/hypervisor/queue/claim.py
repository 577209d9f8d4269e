"""Claiming work, keeping a claim alive, and ending it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING
from zlib import crc32

from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput, LeaseLost, NotFound
from hypervisor.core.records import NamedTuple
from hypervisor.core.times import duration_ms
from hypervisor.queue import settle
from hypervisor.queue.context import Context, remembered_batch_id
from hypervisor.queue.lane import ClaimFilter, Priority, check_priority
from hypervisor.queue.lease import (
    DEFAULT_LEASE,
    MAX_LEASE,
    MAX_PER_CLAIM,
    AttemptResult,
    ClaimRequest,
    Lease,
    SettledResult,
    Worker,
    parse_token,
)
from hypervisor.queue.lifecycle import back_off
from hypervisor.queue.rescue import sweep_if_due
from hypervisor.queue.sql import claims, queries
from hypervisor.queue.task import Json
from hypervisor.store.database import Session

if TYPE_CHECKING:
    from datetime import timedelta


class Done(NamedTuple):
    """A finished claim and its result."""

    token: str
    result: Json = None
    proposals: bool = False  # add what was proposed under the claim to the result


class CompleteAndClaim(NamedTuple):
    """The tasks that `complete_and_claim` finished and claimed."""

    settled: tuple[SettledResult, ...]
    leases: tuple[Lease, ...]


class HeartbeatResult(NamedTuple):
    """Which claims a heartbeat kept alive, and which have ended."""

    until: int
    alive: tuple[str, ...]
    lost: tuple[str, ...]


def claim(
    hv: Context,
    worker: str,
    limit: int = 1,
    lease: int | timedelta = DEFAULT_LEASE,
    *,
    batch: str | None = None,
    types: Sequence[str] = (),
    branch: str | None = None,
    priorities: Sequence[Priority] = (),
    capabilities: Sequence[str] = (),
    assignee: str | None = None,
    pid: int | None = None,
    now: int | None = None,
) -> tuple[Lease, ...]:
    """Claim the next tasks, best first; each is yours alone until its lease ends."""
    wanted = _filter(
        hv,
        batch=batch,
        types=types,
        branch=branch,
        priorities=priorities,
        capabilities=capabilities,
        assignee=assignee,
    )
    request = _request(hv, worker, limit, lease, wanted, pid=pid)
    return _claim(hv, (), request, now).leases


def complete(
    hv: Context, token: str, result: Json = None, now: int | None = None, proposals: bool = False
) -> SettledResult:
    """Complete a claimed task; repeating the call changes nothing and returns the same answer.

    With `proposals`, what was proposed under the claim is added to the result."""
    completed = _done(token, result, proposals)

    def needs_no_check(session: Session, batch: str) -> bool:
        return not batch or '"schema"' not in claims.spec_of_batch(session, batch)

    # Most batches have no schema: then one transaction is enough.
    if settled := settle.settle(hv.store, [completed], hv.at(now), needs_no_check):
        return _unless_lost(settled[0])
    return _settle(hv, _done(token, checked_result(hv, token, result), proposals), now)


def checked_result(hv: Context, token: str, result: Json) -> Json:
    """The result as it is stored. SchemaMismatch: it does not match the schema of the batch."""
    claim = parse_token(token)
    spec = hv.store.read(claims.batch_spec, claim)
    if '"schema"' not in spec:
        return result
    from hypervisor.queue.result_schema import enforce_schema  # few batches have one

    return enforce_schema(hv, claim, json.loads(spec)["schema"], result)


def complete_and_claim(
    hv: Context,
    done: Iterable[Done | tuple[str, Json]],
    worker: str,
    limit: int = 1,
    lease: int | timedelta = DEFAULT_LEASE,
    *,
    batch: str | None = None,
    types: Sequence[str] = (),
    branch: str | None = None,
    priorities: Sequence[Priority] = (),
    capabilities: Sequence[str] = (),
    assignee: str | None = None,
    pid: int | None = None,
    now: int | None = None,
) -> CompleteAndClaim:
    """Complete tasks and claim the next ones in one transaction."""
    wanted = _filter(
        hv,
        batch=batch,
        types=types,
        branch=branch,
        priorities=priorities,
        capabilities=capabilities,
        assignee=assignee,
    )
    request = _request(hv, worker, limit, lease, wanted, pid=pid)
    return _claim(hv, [_done(*finished) for finished in done], request, now)


def fail(
    hv: Context,
    token: str,
    reason: str,
    final: bool = False,
    retry_in: int | timedelta | None = None,
    *,
    now: int | None = None,
) -> SettledResult:
    """Report that an attempt failed; the task is retried later if it has retries left."""
    validate.text("the reason", reason, empty=False)
    parsed = parse_token(token)
    at = hv.store.now() if now is None else now
    try:
        task = hv.store.read(queries.task, hv.resolve(parsed.task))
    except NotFound:
        raise LeaseLost(token, "no such claim") from None
    if not final and (retry_in is not None or task.failures < task.retries):
        delay = duration_ms(retry_in)
        if delay is None:
            from hypervisor.queue.sql import retry_delays

            delay = back_off(task.failures + 1, hv.store.read(retry_delays.get, task.batch))
        retry_at = at + validate.number("the delay", delay, 0, MAX_LEASE)
        return _settle(hv, AttemptResult(parsed, "back_off", reason=reason, retry_at=retry_at), at)
    return _settle(hv, AttemptResult(parsed, "fail", reason=reason), at)


def block(
    hv: Context, token: str, reason: str, unblock: str | None = None, now: int | None = None
) -> SettledResult:
    """Mark a claimed task as blocked, with the reason and what would unblock it."""
    validate.text("the reason", reason, empty=False)
    if unblock is not None:
        validate.text("what would unblock it", unblock)
    return _settle(
        hv, AttemptResult(parse_token(token), "block", reason=reason, unblock=unblock), now
    )


def release(hv: Context, token: str, reason: str = "", now: int | None = None) -> SettledResult:
    """Return a claimed task to the queue, without counting a failure or a crash."""
    validate.text("the reason", reason)
    return _settle(hv, AttemptResult(parse_token(token), "release", reason=reason or None), now)


def heartbeat(
    hv: Context,
    tokens: Sequence[str],
    lease: int | timedelta = DEFAULT_LEASE,
    now: int | None = None,
) -> HeartbeatResult:
    """Extend the leases of claims; returns the claims that have ended."""
    if not tokens:
        raise InvalidInput("no claim token given")
    lease = validate.number("the lease", duration_ms(lease), 1, MAX_LEASE)
    at = hv.store.now() if now is None else now
    parsed = {text: parse_token(text) for text in tokens}
    alive = hv.store.write_unsynced(claims.heartbeat, list(parsed.values()), at + lease)
    return HeartbeatResult(
        at + lease,
        tuple(text for text, token in parsed.items() if token in alive),
        tuple(text for text, token in parsed.items() if token not in alive),
    )


def _done(token: str, result: Json = None, proposals: bool = False) -> AttemptResult:
    checked = validate.json_value("the result", result)
    return AttemptResult(parse_token(token), "complete", checked, proposals=proposals)


def _settle(hv: Context, result: AttemptResult, now: int | None) -> SettledResult:
    return _unless_lost(settle.settle(hv.store, [result], hv.at(now))[0])


def _unless_lost(answer: SettledResult) -> SettledResult:
    if answer.lost:
        raise LeaseLost(answer.token, answer.lost)
    return answer


def _claim(
    hv: Context, verdicts: Sequence[AttemptResult], request: ClaimRequest, now: int | None
) -> CompleteAndClaim:
    at = hv.store.now() if now is None else now
    sweep_if_due(hv, at)
    settled, leases = settle.settle_and_claim(hv.store, verdicts, request, at)
    if not leases:
        hv.batch_ids.clear()
    return CompleteAndClaim(tuple(settled), tuple(leases))


def _filter(
    hv: Context,
    *,
    batch: str | None,
    types: Sequence[str],
    branch: str | None,
    priorities: Sequence[str],
    capabilities: Sequence[str],
    assignee: str | None,
) -> ClaimFilter:
    return ClaimFilter(
        batch=remembered_batch_id(hv, batch),
        types=validate.names("types", types) if types else (),
        branch=branch,
        priorities=tuple(check_priority(p) for p in priorities),
        capabilities=validate.names("capabilities", capabilities) if capabilities else (),
        assignee=assignee,
    )


def _request(
    hv: Context,
    worker: str,
    limit: int,
    lease: int | timedelta,
    wanted: ClaimFilter,
    *,
    pid: int | None,
) -> ClaimRequest:
    validate.number("the number of tasks", limit, 1, MAX_PER_CLAIM)
    span = validate.number("the lease", duration_ms(lease), 1, MAX_LEASE)
    return ClaimRequest(identity(hv, worker, hv.pid if pid is None else pid), limit, span, wanted)


def identity(hv: Context, name: str, pid: int) -> Worker:
    """The claimer, recorded so that any other process can check whether it is alive."""
    if (name, pid) not in hv.workers:
        validate.name("the worker's name", name)
        hv.workers[name, pid] = _identify(hv, name, pid)
    return hv.workers[name, pid]


def _identify(hv: Context, name: str, pid: int) -> Worker:
    host = hv.probe.host()
    if not pid:
        return Worker(f"{name}@{host}", name, host)
    start = hv.probe.process_start(pid)
    if start is None:
        raise InvalidInput(f"no such process: {pid}")
    boot = hv.probe.boot()
    mark = f"{crc32(f'{boot} {start}'.encode()):08x}"
    return Worker(f"{name}@{host}/{pid}.{mark}", name, host, boot, pid, start)
