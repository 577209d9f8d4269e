"""The status of a batch or of everything: counts, running attempts, pauses, the host, costs."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hypervisor.agents.running_status import (
    AgentActivity,
    Money,
    agents_doing,
    cooling_down,
    money_of,
)
from hypervisor.core.records import NamedTuple
from hypervisor.monitoring.waiting import Waiting, combined, why_waiting
from hypervisor.queue import counts, lifecycle
from hypervisor.queue.context import Context, batch_id
from hypervisor.queue.message import question_of
from hypervisor.queue.pause import BATCH, Pause
from hypervisor.queue.queries import list_tasks
from hypervisor.queue.sql import pauses as pauses_sql
from hypervisor.queue.sql import queries
from hypervisor.queue.task import Batch, Stats
from hypervisor.runs.outputs.room import MIN_FREE_BYTES, no_room_text

if TYPE_CHECKING:
    from hypervisor.agents.cooldown import Cooldown
    from hypervisor.batches.chunk import Chunk
    from hypervisor.runs.spec import Running

MAX_SHOWN = 1_000
MAX_QUESTIONS = 100
SETTING_UP = "setting up its workspace"


class CurrentAttempt(NamedTuple):
    """A running attempt."""

    task: str
    title: str
    batch: str
    attempt: int
    worker: str
    pid: int
    since: int
    memory: int | None  # None if it runs on another host
    last_line: str
    started: bool  # False while it is only claimed
    agent: str = ""  # then `last_line` is its current activity
    tokens: int = 0
    cost_micros: int | None = None
    estimated: bool = False


class Question(NamedTuple):
    """What a blocked task asks people."""

    task: str
    title: str
    question: str


class Status(NamedTuple):
    """The status of a batch or of everything."""

    batch: Batch | None
    stats: Stats
    attempts: tuple[CurrentAttempt, ...]
    pauses: tuple[Pause, ...]
    supervisor: int | None
    host: dict[str, Any] | None  # the governor's last sentence about this host
    checkpoint: Chunk | None = None  # waits for a person's decision
    cooldowns: tuple[Cooldown, ...] = ()  # of accounts of agents
    money: Money | None = None  # what agents have cost
    trouble: str = ""  # why nothing is started on this host, such as a full disk
    waiting: Waiting | None = None  # why nothing starts
    questions: tuple[Question, ...] = ()  # of blocked tasks


def status(hv: Context, batch: str | None = None, now: int | None = None) -> Status:
    """Show the progress of a batch or of everything: counts, running tasks, pauses, host load."""
    counts.keep_short(hv)
    stats = hv.store.read(queries.stats, batch_id(hv, batch), hv.at(now))
    return quick_status(hv, batch, now)._replace(
        stats=stats,
        attempts=attempts(hv, batch) if stats.claimed else (),
        questions=_questions(hv, batch, stats),
    )


def _questions(hv: Context, batch: str | None, stats: Stats) -> tuple[Question, ...]:
    if not stats.states[lifecycle.BLOCKED]:
        return ()
    tasks = list_tasks(hv, (lifecycle.BLOCKED,), batch, limit=MAX_QUESTIONS)
    asked = ((task, question_of(task)) for task in tasks)
    return tuple(Question(task.id, task.title, question) for task, question in asked if question)


def quick_status(hv: Context, batch: str | None = None, now: int | None = None) -> Status:
    """The same without running attempts and the pace, which are slow to read."""
    id = batch_id(hv, batch)
    pauses = [
        pause
        for pause in hv.store.read(pauses_sql.pauses_in_effect)
        if id is None or pause.scope != BATCH or pause.name == id
    ]
    stored = None if id is None else hv.store.read(queries.batch, id)
    host = hv.launcher.read_status()
    current = Status(
        stored,
        hv.store.read(queries.stats, id, hv.at(now), False),
        (),
        tuple(pauses),
        hv.launcher.supervisor(),
        host,
        _checkpoint(hv, stored),
        cooling_down(hv, hv.now() if now is None else now, stored),
        money_of(hv, stored, now),
        trouble(hv, host),
    )
    return current._replace(waiting=_waiting(hv, current, id, hv.at(now)))


def _waiting(hv: Context, current: Status, batch: str | None, now: int) -> Waiting | None:
    states = current.stats.states
    may_be_delayed = states[lifecycle.WAITING] and not current.stats.claimed
    delays = hv.store.read(queries.delays, batch) if may_be_delayed else ()
    waiting = why_waiting(current, delays, now)
    is_idle = states[lifecycle.ACTIVE] and not current.stats.claimed
    spec = current.batch.spec if current.batch is not None else None
    is_placed = hv.store.is_shared or (isinstance(spec, dict) and "on" in spec)
    if is_idle and is_placed and (waiting is None or waiting.kind == "requirements"):
        return _by_hosts(hv, batch, now) or waiting
    return waiting


def _by_hosts(hv: Context, batch: str | None, now: int) -> Waiting | None:
    """Tasks are ready, and no live host can run them."""
    from hypervisor.queue.sql import hosts as hosts_sql
    from hypervisor.runs import placement, sql

    hosts = hv.store.read(hosts_sql.hosts)
    for ready in hv.store.read(sql.ready, None) if hosts else ():
        if batch in (None, ready.batch):
            lacking = placement.no_host_text(ready.tasks, ready.requires, hosts, now)
            if text := lacking or placement.refusal_text(ready.batch, hosts, now):
                return Waiting("hosts", text)
    return None


def trouble(hv: Context, host: dict[str, Any] | None) -> str:
    """Why nothing can start on this host, checked now or reported by the supervisor."""
    if hv.outputs.room() < MIN_FREE_BYTES:
        return no_room_text(hv.store.where)
    return str((host or {}).get("trouble", ""))


def _checkpoint(hv: Context, batch: Batch | None) -> Chunk | None:
    if batch is None:
        return None
    from hypervisor.batches.sql import chunks

    return next(
        (chunk for chunk in hv.store.read(chunks.every, batch.id) if chunk.awaits_decision), None
    )


def attempts(hv: Context, batch: str | None = None) -> tuple[CurrentAttempt, ...]:
    """List the running attempts with their age, memory and last line of output."""
    from hypervisor.runs import sql

    id = batch_id(hv, batch)
    running = hv.store.read(sql.running, id, MAX_SHOWN)
    here = hv.probe.boot()
    memory = hv.launcher.memory({r.worker.pid for r in running if r.worker.boot == here})
    agents = agents_doing(hv, running, id)
    readable = hv.outputs.shared is not None
    lines = _last_lines(hv, [r for r in running if readable or r.worker.boot == here])
    return tuple(
        _with_agent(_attempting(run, here, memory, lines), agents.get((run.task, run.attempt)))
        for run in running
    )


def _with_agent(attempt: CurrentAttempt, doing: AgentActivity | None) -> CurrentAttempt:
    """For an agent, show its activity instead of the last line of output."""
    if doing is None:
        return attempt
    return attempt._replace(
        last_line=doing.activity,
        started=True,
        agent=doing.agent,
        tokens=doing.tokens,
        cost_micros=doing.cost_micros,
        estimated=doing.estimated,
    )


def _last_lines(hv: Context, running: list[Running]) -> dict[tuple[str, int], str]:
    """The last lines of started attempts. An earlier attempt of the same worker has ended and is
    about to be settled: its output is not read."""
    elsewhere = _last_parts_elsewhere(hv, running)
    begun = [
        r
        for r in running
        if (r.task, r.attempt) in elsewhere or hv.outputs.local_size(r.task, r.attempt) is not None
    ]
    latest = {r.worker.id: r for r in begun}
    setting_up = {
        (r.task, r.attempt): SETTING_UP
        for r in running
        if os.path.exists(hv.outputs.setup_path(r.task, r.attempt))
    }
    return setting_up | {
        (r.task, r.attempt): hv.outputs.last_line(
            r.task, r.attempt, elsewhere.get((r.task, r.attempt))
        )
        if r is latest[r.worker.id]
        else ""
        for r in begun
    }


def _last_parts_elsewhere(hv: Context, running: list[Running]) -> dict[tuple[str, int], bytes]:
    """The ends of what attempts on other hosts have printed."""
    if hv.outputs.shared is None:
        return {}
    boot = hv.probe.boot()
    return hv.outputs.shared.last_parts([r.task for r in running if r.worker.boot != boot])


def _attempting(
    running: Running, boot: str, memory: dict[int, int], lines: dict[tuple[str, int], str]
) -> CurrentAttempt:
    here, line = running.worker.boot == boot, lines.get((running.task, running.attempt))
    return CurrentAttempt(
        running.task,
        running.title,
        running.batch,
        running.attempt,
        running.worker.name,
        running.worker.pid,
        running.claimed_at,
        memory.get(running.worker.pid) if here else None,
        line or "",
        not here or line is not None,
    )


def combine(parts: Sequence[Status]) -> Status:
    """The combined status of several batches, under the name of the first."""
    if len(parts) == 1:
        return parts[0]
    return parts[0]._replace(
        stats=_combine_stats([part.stats for part in parts]),
        attempts=tuple(sorted((a for p in parts for a in p.attempts), key=lambda a: a.since)),
        pauses=tuple(dict.fromkeys(pause for part in parts for pause in part.pauses)),
        cooldowns=tuple(dict.fromkeys(cooldown for part in parts for cooldown in part.cooldowns)),
        checkpoint=next((part.checkpoint for part in parts if part.checkpoint), None),
        waiting=combined(
            [part.waiting for part in parts], sum(part.stats.claimed for part in parts)
        ),
        money=_combine_money([part.money for part in parts if part.money]),
        questions=tuple(question for part in parts for question in part.questions),
    )


def _combine_stats(parts: Sequence[Stats]) -> Stats:
    states: Counter[str] = Counter()
    types: dict[str, dict[str, int]] = {}
    for part in parts:
        states.update(part.states)
        for type, by_state in part.types.items():
            types[type] = dict(Counter(types.get(type, {})) + Counter(by_state))
    return parts[0]._replace(
        total=sum(part.total for part in parts),
        states=states,
        types=types,
        remaining=sum(part.remaining for part in parts),
        claimed=sum(part.claimed for part in parts),
        completed_per_minute=sum(part.completed_per_minute for part in parts),
        failed_per_minute=sum(part.failed_per_minute for part in parts),
    )


def _combine_money(parts: Sequence[Money]) -> Money | None:
    if not parts:
        return None
    spent = parts[0].spent._replace(
        tokens=sum(part.spent.tokens for part in parts),
        cost_micros=sum(part.spent.cost_micros for part in parts),
        estimated=any(part.spent.estimated for part in parts),
        unpriced=sum(part.spent.unpriced for part in parts),
    )
    return Money(spent, tuple(dict.fromkeys(used for part in parts for used in part.used)))
