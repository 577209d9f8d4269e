"""What agents are doing now and what they have cost: from their sessions and transcripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hypervisor.agents.budget import Limit, limits
from hypervisor.agents.cooldown import Cooldown
from hypervisor.agents.session import AgentSession, Spent
from hypervisor.agents.sql import cooldowns, sessions
from hypervisor.agents.transcript import current_activity
from hypervisor.core.errors import InvalidInput, NotFound
from hypervisor.core.text import amount_text
from hypervisor.queue.context import Context
from hypervisor.queue.lifecycle import IN_PROGRESS
from hypervisor.queue.sql import queries
from hypervisor.queue.task import Batch
from hypervisor.runs.spec import Running, RunSpec, spec_from

TAIL = 48_000  # bytes of a transcript that are looked at for what happens now
MOST_SESSIONS = 400
DAY = 86_400_000
SHORTEST = 4  # characters of an id


class Doing(NamedTuple):
    """An agent at work on a claimed task. `said` is what it does now, in one line."""

    agent: str
    session: str  # the id of its row
    said: str
    tokens: int
    cost_micros: int | None
    estimated: bool


class Money(NamedTuple):
    """What a batch has cost so far, and how far its budgets are used up, in words."""

    spent: Spent
    used: tuple[str, ...] = ()


def live_sessions(hv: Context, batch: str | None = None) -> list[AgentSession]:
    """The runs of agents that have not ended, newest first."""
    found = hv.store.read(sessions.sessions, batch, limit=MOST_SESSIONS)
    return [each for each in found if each.outcome is None]


def agents_doing(
    hv: Context, running: Sequence[Running], batch: str | None
) -> dict[tuple[str, int], Doing]:
    """By task and attempt, what the agents among the running attempts do."""
    if not running:
        return {}
    live = live_sessions(hv, batch)
    if not live:
        return {}
    here = hv.probe.boot()
    by_task = {(each.task, each.attempt): each for each in live if each.task}
    by_worker = {each.worker: each for each in live if not each.task}
    found = {}
    for each in running:
        key = (each.task, each.attempt)
        session = by_task.get(key) or by_worker.get(each.worker.id)
        if session is not None:
            found[key] = _doing(hv, session, each.worker.boot == here)
    return found


def transcript_of(session: AgentSession) -> tuple[str, int]:
    """Where the transcript is kept: of an agent that claims by itself, under its session."""
    return (session.task, session.attempt) if session.task else (session.id, 1)


def stream_of(hv: Context, agent: str) -> str:
    """How an agent speaks; one whose profile is gone as plain text."""
    profile = hv.settings.agents.get(agent)
    return profile.stream if profile is not None else "text"


def money_of(hv: Context, batch: Batch | None, now: int | None = None) -> Money | None:
    """What agents have cost, of a batch or today; None where none have run."""
    at = hv.now() if now is None else now
    today = hv.store.read(sessions.spent, since=at - at % DAY)
    settings = hv.settings
    if batch is None:
        found = limits(Spent(), RunSpec(cwd=""), today, settings.day_budget, settings.day_tokens)
        used = tuple(map(_used, found))
        return Money(today, used) if today.tokens or used else None
    if not isinstance(batch.spec, dict) or not batch.spec.get("agent"):
        return None
    try:
        spec = spec_from(batch.spec)
    except InvalidInput:  # of a newer version
        return None
    spent = hv.store.read(sessions.spent, batch.id)
    found = limits(spent, spec, today, settings.day_budget, settings.day_tokens)
    return Money(spent, tuple(map(_used, found)))


def _used(limit: Limit) -> str:
    if limit.is_money:
        about = "about " if limit.estimated else ""
        return f"{about}{amount_text(limit.used)} of {amount_text(limit.limit)} ({limit.what})"
    return f"{limit.used:,} of {limit.limit:,} tokens ({limit.what})"


def cooling_down(hv: Context, now: int, batch: Batch | None = None) -> tuple[Cooldown, ...]:
    """The cooldowns of now: all, or those of accounts that the agents of a batch may use."""
    found = tuple(cooldown for cooldown in hv.store.read(cooldowns.brakes) if cooldown.until > now)
    if batch is None or not found:
        return found
    spec = batch.spec if isinstance(batch.spec, dict) else {}
    names = [name for name in (spec.get("agent"), *(spec.get("agents") or ())) if name]
    profiles = (hv.settings.agents.get(name) for name in names)
    providers = {each.provider or each.name for each in profiles if each is not None}
    return tuple(cooldown for cooldown in found if cooldown.provider in providers)


def _doing(hv: Context, session: AgentSession, here: bool) -> Doing:
    task, attempt = transcript_of(session)
    said = ""
    if here and (size := hv.outputs.size(task, attempt)):
        tail = hv.outputs.read(task, attempt, max(size - TAIL, 0), TAIL)
        if size > TAIL:
            tail = tail.partition(b"\n")[2]  # half a line says nothing
        said = current_activity(stream_of(hv, session.agent), tail.decode("utf-8", "replace"))
    return Doing(
        session.agent,
        session.id,
        said,
        sum(session.tokens),
        session.cost_micros,
        session.estimated,
    )


class Transcript(NamedTuple):
    """A kept output. Of an agent it is a transcript, which `stream` says how to read."""

    task: str  # or, of an agent that claims by itself, the id of its session
    attempt: int
    agent: str = ""
    stream: str = ""
    session: str = ""


def transcript(hv: Context, name: str, attempt: int | None = None) -> Transcript:
    """Find the output that is meant: by a task, or by the session of an agent."""
    try:
        task = hv.resolve(name)
    except NotFound:
        own = next(
            (s for s in hv.store.read(sessions.sessions, limit=10_000) if s.id.startswith(name)),
            None,
        )
        if own is None or len(name) < SHORTEST:
            raise
        return Transcript(*transcript_of(own), own.agent, stream_of(hv, own.agent), own.id)
    number = attempt or _last_kept(hv, task)
    session = _session_of(hv, task, number)
    if session is None:
        return Transcript(task, number)
    where = (task, number) if session.task else transcript_of(session)
    return Transcript(*where, session.agent, stream_of(hv, session.agent), session.id)


def read(hv: Context, found: Transcript, start: int = 0, most: int = 1 << 20) -> bytes:
    """A piece of a kept output. NotFound: it is not kept here."""
    if hv.outputs.size(found.task, found.attempt) is None:
        raise NotFound(f"no output of {found.task}, attempt {found.attempt}, is kept here.")
    return hv.outputs.read(found.task, found.attempt, start, most)


def patch(hv: Context, found: Transcript) -> bytes:
    """What an agent changed in its scratch copy. NotFound: nothing, or it had none."""
    path = hv.outputs.path(found.task, found.attempt).removesuffix(".log") + ".patch"
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        raise NotFound(
            f"no patch of {found.task}, attempt {found.attempt}, is kept here: it changed nothing, "
            "or was not run with --scratch."
        ) from None


def still_runs(hv: Context, found: Transcript) -> bool:
    """Whether more may come."""
    if found.session and found.task == found.session:
        return any(each.id == found.session for each in live_sessions(hv))
    task = hv.store.read(queries.task, found.task)
    return task.state == IN_PROGRESS and task.attempts == found.attempt


def _last_kept(hv: Context, task: str) -> int:
    last = hv.store.read(queries.task, task).attempts
    kept = (n for n in range(last, 0, -1) if hv.outputs.size(task, n) is not None)
    return next(kept, last)


def _session_of(hv: Context, task: str, attempt: int) -> AgentSession | None:
    """Its own, or that of the agent which claimed it by itself."""
    own = [each for each in hv.store.read(sessions.sessions, task=task) if each.attempt == attempt]
    if own:
        return own[0]
    tries = (
        each for each in hv.store.read(queries.detail, task).attempts if each.number == attempt
    )
    claim = next(tries, None)
    if claim is None or hv.outputs.size(task, attempt) is not None:
        return None
    for each in hv.store.read(sessions.sessions, worker=claim.worker):
        if each.started_at <= claim.claimed_at <= (each.ended_at or claim.claimed_at):
            return each
    return None
