"""Claiming work, keeping a claim alive, and ending it."""

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from zlib import crc32

from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput, LeaseLost, NotFound
from hypervisor.queue import settle
from hypervisor.queue.context import Context, batch_id
from hypervisor.queue.lane import ClaimFilter
from hypervisor.queue.lease import (
    DEFAULT_LEASE,
    LONGEST_LEASE,
    MOST_PER_CLAIM,
    AttemptResult,
    ClaimRequest,
    Lease,
    Settled,
    Worker,
    parse_token,
)
from hypervisor.queue.priority import check_priority
from hypervisor.queue.rescue import sweep_if_due
from hypervisor.queue.retry import back_off
from hypervisor.queue.sql import claims, queries
from hypervisor.queue.task import Json
from hypervisor.store.database import Session


class Done(NamedTuple):
    """A finished claim and what it brought."""

    token: str
    result: Json = None
    proposals: bool = False  # add what was proposed under the claim to the result


class Turn(NamedTuple):
    """What one `complete_and_claim` did."""

    settled: tuple[Settled, ...]
    leases: tuple[Lease, ...]


class Beat(NamedTuple):
    """Which claims a heartbeat kept alive, and which have ended."""

    until: int
    alive: tuple[str, ...]
    lost: tuple[str, ...]


def claim(
    hv: Context,
    worker: str,
    limit: int = 1,
    lease: int = DEFAULT_LEASE,
    *,
    batch: str | None = None,
    types: Sequence[str] = (),
    branch: str | None = None,
    priorities: Sequence[str] = (),
    capabilities: Sequence[str] = (),
    assignee: str | None = None,
    pid: int | None = None,
    now: int | None = None,
) -> tuple[Lease, ...]:
    """Take the best tasks you can do; each is yours alone until its lease ends."""
    wanted = _wanted(
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
) -> Settled:
    """Finish a claimed task; doing it twice gives the first answer and changes nothing.

    With `proposals`, what was proposed under the claim is added to the result."""
    completed = _done(token, result, proposals)

    def needs_no_check(session: Session) -> bool:
        return '"schema"' not in claims.batch_spec(session, completed.token)

    # Most batches have no schema: then one transaction is enough.
    if settled := settle.settle(hv.store, [completed], hv.at(now), needs_no_check):
        return _held(settled[0])
    return _settle(hv, _done(token, checked_result(hv, token, result), proposals), now)


def checked_result(hv: Context, token: str, result: Json) -> Json:
    """The result as its task keeps it. SchemaMismatch: it does not follow the batch's schema."""
    claim = parse_token(token)
    spec = hv.store.read(claims.batch_spec, claim)
    if '"schema"' not in spec:
        return result
    from hypervisor.queue.result_schema import fitted  # few batches have one

    return fitted(hv, claim, json.loads(spec)["schema"], result)


def complete_and_claim(
    hv: Context,
    done: Iterable[Done | tuple[str, Json]],
    worker: str,
    limit: int = 1,
    lease: int = DEFAULT_LEASE,
    *,
    batch: str | None = None,
    types: Sequence[str] = (),
    branch: str | None = None,
    priorities: Sequence[str] = (),
    capabilities: Sequence[str] = (),
    assignee: str | None = None,
    pid: int | None = None,
    now: int | None = None,
) -> Turn:
    """Finish tasks and take the next ones in one step, at the cost of one."""
    wanted = _wanted(
        hv,
        batch=batch,
        types=types,
        branch=branch,
        priorities=priorities,
        capabilities=capabilities,
        assignee=assignee,
    )
    request = _request(hv, worker, limit, lease, wanted, pid=pid)
    return _claim(hv, [_done(*each) for each in done], request, now)


def fail(
    hv: Context,
    token: str,
    reason: str,
    final: bool = False,
    retry_in: int | None = None,
    *,
    now: int | None = None,
) -> Settled:
    """Give up an attempt: the task is tried again later while retries are left, else failed."""
    validate.text("the reason", reason, empty=False)
    parsed = parse_token(token)
    at = hv.store.now() if now is None else now
    try:
        task = hv.store.read(queries.task, hv.resolve(parsed.task))
    except NotFound:
        raise LeaseLost(token, "no such claim") from None
    if not final and (retry_in is not None or task.failures < task.retries):
        delay = back_off(task.failures + 1) if retry_in is None else retry_in
        validate.number("the delay", delay, 0, LONGEST_LEASE)
        return _settle(
            hv, AttemptResult(parsed, "back_off", reason=reason, retry_at=at + delay), at
        )
    return _settle(hv, AttemptResult(parsed, "fail", reason=reason), at)


def block(
    hv: Context, token: str, reason: str, unblock: str | None = None, now: int | None = None
) -> Settled:
    """Stop work on a task that cannot go on; say why, and what would unblock it."""
    validate.text("the reason", reason, empty=False)
    if unblock is not None:
        validate.text("what would unblock it", unblock)
    return _settle(
        hv, AttemptResult(parse_token(token), "block", reason=reason, unblock=unblock), now
    )


def release(hv: Context, token: str, reason: str = "", now: int | None = None) -> Settled:
    """Return a claimed task to the queue, without counting a failure or a crash."""
    validate.text("the reason", reason)
    return _settle(hv, AttemptResult(parse_token(token), "release", reason=reason or None), now)


def heartbeat(
    hv: Context, tokens: Sequence[str], lease: int = DEFAULT_LEASE, now: int | None = None
) -> Beat:
    """Keep claims alive; tells which of them have ended."""
    if not tokens:
        raise InvalidInput("no token given: which claim shall be kept alive?")
    validate.number("the lease", lease, 1, LONGEST_LEASE)
    at = hv.store.now() if now is None else now
    parsed = {text: parse_token(text) for text in tokens}
    alive = hv.store.write_unsynced(claims.heartbeat, list(parsed.values()), at + lease)
    return Beat(
        at + lease,
        tuple(text for text, token in parsed.items() if token in alive),
        tuple(text for text, token in parsed.items() if token not in alive),
    )


def _done(token: str, result: Json = None, proposals: bool = False) -> AttemptResult:
    checked = validate.json_value("the result", result)
    return AttemptResult(parse_token(token), "complete", checked, proposals=proposals)


def _settle(hv: Context, result: AttemptResult, now: int | None) -> Settled:
    return _held(settle.settle(hv.store, [result], hv.at(now))[0])


def _held(answer: Settled) -> Settled:
    if answer.lost:
        raise LeaseLost(answer.token, answer.lost)
    return answer


def _claim(
    hv: Context, verdicts: Sequence[AttemptResult], request: ClaimRequest, now: int | None
) -> Turn:
    at = hv.store.now() if now is None else now
    sweep_if_due(hv, at)
    settled, leases = settle.settle_and_claim(hv.store, verdicts, request, at)
    return Turn(tuple(settled), tuple(leases))


def _wanted(
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
        batch=batch_id(hv, batch),
        types=validate.names("types", types) if types else (),
        branch=branch,
        priorities=tuple(check_priority(p) for p in priorities),
        capabilities=validate.names("capabilities", capabilities) if capabilities else (),
        assignee=assignee,
    )


def _request(
    hv: Context, worker: str, limit: int, lease: int, wanted: ClaimFilter, *, pid: int | None
) -> ClaimRequest:
    validate.number("the number of tasks", limit, 1, MOST_PER_CLAIM)
    validate.number("the lease", lease, 1, LONGEST_LEASE)
    return ClaimRequest(identity(hv, worker, hv.pid if pid is None else pid), limit, lease, wanted)


def identity(hv: Context, name: str, pid: int) -> Worker:
    """The claimer, written down so that any other process can tell whether it lives."""
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
        raise InvalidInput(f"there is no process {pid} that could hold the claim.")
    boot = hv.probe.boot()
    mark = f"{crc32(f'{boot} {start}'.encode()):08x}"
    return Worker(f"{name}@{host}/{pid}.{mark}", name, host, boot, pid, start)
