"""How work stands: counts, what runs now, what is paused, the host, and what agents have cost."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from hypervisor.agents.cooldown import Cooldown
from hypervisor.agents.running_status import Doing, Money, agents_doing, cooling_down, money_of
from hypervisor.batches.chunk import Chunk
from hypervisor.batches.sql import chunks
from hypervisor.queue.context import Context, batch_id
from hypervisor.queue.sql import queries
from hypervisor.queue.task import Batch, Stats
from hypervisor.runs import sql
from hypervisor.runs.spec import BATCH, LEAST_ROOM, Pause, Running, no_room_text

MOST_SHOWN = 1_000


class Attempting(NamedTuple):
    """An attempt that runs now."""

    task: str
    title: str
    batch: str
    attempt: int
    worker: str
    pid: int
    since: int
    memory: int | None  # None where this host cannot tell
    last_line: str
    started: bool  # False while it is only claimed
    agent: str = ""  # then `last_line` is what it does now
    tokens: int = 0
    cost_micros: int | None = None
    estimated: bool = False


class Status(NamedTuple):
    """Where a batch, or everything, stands."""

    batch: Batch | None
    stats: Stats
    attempts: tuple[Attempting, ...]
    pauses: tuple[Pause, ...]
    supervisor: int | None
    host: dict[str, Any] | None  # what the governor last said of this host
    checkpoint: Chunk | None = None  # that waits for a person's decision
    brakes: tuple[Cooldown, ...] = ()  # accounts of agents that rest
    money: Money | None = None  # what agents have cost
    trouble: str = ""  # why nothing is started on this host, such as a full disk


def status(hv: Context, batch: str | None = None, now: int | None = None) -> Status:
    """Show where a batch or everything stands: counts, what runs, what is paused, the host."""
    return standing(hv, batch, now)._replace(attempts=attempts(hv, batch))


def standing(hv: Context, batch: str | None = None, now: int | None = None) -> Status:
    """The same without the attempts that run, which are dear to look at."""
    found = batch_id(hv, batch)
    pauses = [
        each
        for each in hv.store.read(sql.pauses)
        if found is None or each.scope != BATCH or each.name == found
    ]
    meant = None if found is None else hv.store.read(queries.batch, found)
    host = hv.launcher.read_status()
    return Status(
        meant,
        hv.store.read(queries.stats, found, hv.at(now), False),
        (),
        tuple(pauses),
        hv.launcher.supervisor(),
        host,
        _checkpoint(hv, meant),
        cooling_down(hv, hv.now() if now is None else now, meant),
        money_of(hv, meant, now),
        trouble(hv, host),
    )


def trouble(hv: Context, host: dict[str, Any] | None) -> str:
    """Why nothing can be started here: seen right now, or told by the supervisor."""
    if hv.outputs.room() < LEAST_ROOM:
        return no_room_text(hv.store.where)
    return str((host or {}).get("trouble", ""))


def _checkpoint(hv: Context, batch: Batch | None) -> Chunk | None:
    if batch is None:
        return None
    return next(
        (each for each in hv.store.read(chunks.every, batch.id) if each.awaits_decision), None
    )


def attempts(hv: Context, batch: str | None = None) -> tuple[Attempting, ...]:
    """List the attempts that run now, with their age, memory and last line of output."""
    meant = batch_id(hv, batch)
    found = hv.store.read(sql.running, meant, MOST_SHOWN)
    here = hv.probe.boot()
    memory = hv.launcher.memory({r.worker.pid for r in found if r.worker.boot == here})
    agents = agents_doing(hv, found, meant)
    lines = _last_lines(hv, [r for r in found if r.worker.boot == here])
    return tuple(
        _with_agent(_attempting(each, here, memory, lines), agents.get((each.task, each.attempt)))
        for each in found
    )


def _with_agent(each: Attempting, doing: Doing | None) -> Attempting:
    """Of an agent, what it does says more than the last line it printed."""
    if doing is None:
        return each
    return each._replace(
        last_line=doing.said,
        started=True,
        agent=doing.agent,
        tokens=doing.tokens,
        cost_micros=doing.cost_micros,
        estimated=doing.estimated,
    )


def _last_lines(hv: Context, found: list[Running]) -> dict[tuple[str, int], str]:
    """Of those that have begun. What a worker began before its latest has ended and is about to
    be settled: nobody asks for its words."""
    begun = [r for r in found if hv.outputs.size(r.task, r.attempt) is not None]
    latest = {r.worker.id: r for r in begun}
    return {
        (r.task, r.attempt): hv.outputs.last_line(r.task, r.attempt)
        if r is latest[r.worker.id]
        else ""
        for r in begun
    }


def _attempting(
    each: Running, boot: str, memory: dict[int, int], lines: dict[tuple[str, int], str]
) -> Attempting:
    here, line = each.worker.boot == boot, lines.get((each.task, each.attempt))
    return Attempting(
        each.task,
        each.title,
        each.batch,
        each.attempt,
        each.worker.name,
        each.worker.pid,
        each.claimed_at,
        memory.get(each.worker.pid) if here else None,
        line or "",
        not here or line is not None,
    )


def combine(parts: Sequence[Status]) -> Status:
    """How several batches stand together, as if they were the first of them."""
    if len(parts) == 1:
        return parts[0]
    return parts[0]._replace(
        stats=_combine_stats([part.stats for part in parts]),
        attempts=tuple(sorted((a for p in parts for a in p.attempts), key=lambda a: a.since)),
        pauses=tuple(dict.fromkeys(pause for part in parts for pause in part.pauses)),
        brakes=tuple(dict.fromkeys(brake for part in parts for brake in part.brakes)),
        checkpoint=next((part.checkpoint for part in parts if part.checkpoint), None),
        money=_combine_money([part.money for part in parts if part.money]),
    )


def _combine_stats(parts: Sequence[Stats]) -> Stats:
    states: Counter[str] = Counter()
    types: dict[str, dict[str, int]] = {}
    for part in parts:
        states.update(part.states)
        for type, counts in part.types.items():
            types[type] = dict(Counter(types.get(type, {})) + Counter(counts))
    return parts[0]._replace(
        total=sum(part.total for part in parts),
        states=states,
        types=types,
        remaining=sum(part.remaining for part in parts),
        claimed=sum(part.claimed for part in parts),
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
