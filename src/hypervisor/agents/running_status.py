"""What agents are doing now and what they have cost, from their sessions and transcripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hypervisor.agents.sql import cooldowns
from hypervisor.core.errors import InvalidInput, NotFound
from hypervisor.core.records import NamedTuple
from hypervisor.core.text import used_text
from hypervisor.queue.agent_session import AgentSession, DaySpent, Spent
from hypervisor.queue.context import Context
from hypervisor.queue.lifecycle import IN_PROGRESS
from hypervisor.queue.sql import agent_sessions, queries
from hypervisor.queue.task import Batch

if TYPE_CHECKING:
    from hypervisor.agents.budget import Limit
    from hypervisor.agents.cooldown import Cooldown
    from hypervisor.runs.spec import Running

TAIL = 48_000  # bytes at the end of a transcript that are read for the current activity
MAX_SESSIONS = 400
DAY = 86_400_000
MIN_LENGTH = 4  # characters of an id


class AgentActivity(NamedTuple):
    """An agent that works on a task. `activity` is its current activity, in one line."""

    agent: str
    session: str  # the id of its row
    activity: str
    tokens: int
    cost_micros: int | None
    estimated: bool


class Money(NamedTuple):
    """The cost of a batch so far, and how much of its budgets is used up, as text."""

    spent: Spent
    used: tuple[str, ...] = ()


def live_sessions(hv: Context, batch: str | None = None) -> list[AgentSession]:
    """The sessions that have not ended, newest first."""
    sessions = hv.store.read(agent_sessions.sessions, batch, limit=MAX_SESSIONS)
    return [session for session in sessions if session.outcome is None]


def agents_doing(
    hv: Context, running: Sequence[Running], batch: str | None
) -> dict[tuple[str, int], AgentActivity]:
    """The activities of agents among the running attempts, by task and attempt."""
    if not running:
        return {}
    live = live_sessions(hv, batch)
    if not live:
        return {}
    here = hv.probe.boot()
    by_task = {(session.task, session.attempt): session for session in live if session.task}
    by_worker = {session.worker: session for session in live if not session.task}
    activities = {}
    for attempt in running:
        key = (attempt.task, attempt.attempt)
        session = by_task.get(key) or by_worker.get(attempt.worker.id)
        if session is not None:
            activities[key] = _doing(hv, session, attempt.worker.boot == here)
    return activities


def transcript_of(session: AgentSession) -> tuple[str, int]:
    """The task and attempt under which a transcript is stored; for a pull agent, its session."""
    return (session.task, session.attempt) if session.task else (session.id, 1)


def stream_of(hv: Context, agent: str) -> str:
    """The stream format of an agent; plain text if its profile no longer exists."""
    profile = hv.agent_settings.profiles.get(agent)
    return profile.stream if profile is not None else "text"


def money_of(hv: Context, batch: Batch | None, now: int | None = None) -> Money | None:
    """What agents have cost, for a batch or today; None if none have run."""
    if batch is not None and not (isinstance(batch.spec, dict) and batch.spec.get("agent")):
        return None
    at = hv.now() if now is None else now
    today = hv.store.read(agent_sessions.spent, since=at - at % DAY)
    settings = hv.agent_settings
    if not (batch or today.tokens or settings.day_budget or settings.day_tokens):
        return None
    from hypervisor.agents.budget import batch_limits, day_limits

    if batch is None:
        limits = day_limits(today, settings.day_budget, settings.day_tokens)
        used = tuple(map(_used, limits))
        return Money(today, used) if today.tokens or used else None
    from hypervisor.runs.spec import agent_of, spec_from

    try:
        agent = agent_of(spec_from(batch.spec))
    except InvalidInput:  # of a newer version
        return None
    spent = hv.store.read(agent_sessions.spent, batch.id)
    limits = [
        *batch_limits(spent, agent),
        *day_limits(today, settings.day_budget, settings.day_tokens),
    ]
    return Money(spent, tuple(map(_used, limits)))


def used_up_today(hv: Context, now: int) -> tuple[str, ...]:
    """The daily budgets that are used up, each as a sentence with what to do."""
    from hypervisor.agents.budget import day_limits, over

    settings = hv.agent_settings
    if settings.day_budget is None and settings.day_tokens is None:
        return ()
    today = hv.store.read(agent_sessions.spent, since=now - now % DAY)
    limits = day_limits(today, settings.day_budget, settings.day_tokens)
    return tuple(filter(None, (over([limit]) for limit in limits)))


def spent_by_day(hv: Context, days: int = 14, now: int | None = None) -> tuple[DaySpent, ...]:
    """What each agent has cost on each of the last days (of UTC), the last day first."""
    at = hv.now() if now is None else now
    return tuple(hv.store.read(agent_sessions.by_day, at - at % DAY - (days - 1) * DAY))


def _used(limit: Limit) -> str:
    if limit.is_money:
        about = "about " if limit.estimated else ""
        return f"{about}{used_text(limit.used, limit.limit)} ({limit.what})"
    return f"{limit.used:,} of {limit.limit:,} tokens ({limit.what})"


def cooling_down(hv: Context, now: int, batch: Batch | None = None) -> tuple[Cooldown, ...]:
    """The active cooldowns: all, or those of accounts that the agents of a batch may use."""
    active = tuple(cooldown for cooldown in hv.store.read(cooldowns.every) if cooldown.until > now)
    if batch is None or not active:
        return active
    spec = batch.spec if isinstance(batch.spec, dict) else {}
    names = [name for name in (spec.get("agent"), *(spec.get("agents") or ())) if name]
    profiles = (hv.agent_settings.profiles.get(name) for name in names)
    providers = {profile.provider or profile.name for profile in profiles if profile is not None}
    return tuple(cooldown for cooldown in active if cooldown.provider in providers)


def _doing(hv: Context, session: AgentSession, here: bool) -> AgentActivity:
    task, attempt = transcript_of(session)
    activity = ""
    if (here or hv.outputs.shared is not None) and (size := hv.outputs.size(task, attempt)):
        tail = hv.outputs.read(task, attempt, max(size - TAIL, 0), TAIL)
        if size > TAIL:
            tail = tail.partition(b"\n")[2]  # skip a partial line
        from hypervisor.agents.transcript import current_activity

        activity = current_activity(stream_of(hv, session.agent), tail.decode("utf-8", "replace"))
    return AgentActivity(
        session.agent,
        session.id,
        activity,
        sum(session.tokens),
        session.cost_micros,
        session.estimated,
    )


class Transcript(NamedTuple):
    """A stored output. That of an agent is a transcript in the format `stream`."""

    task: str  # for a pull agent, the id of its session
    attempt: int
    agent: str = ""
    stream: str = ""
    session: str = ""


def transcript(hv: Context, name: str, attempt: int | None = None) -> Transcript:
    """Find an output by its task, or by the session of an agent."""
    from hypervisor.runs.results import latest_output

    try:
        task = hv.resolve(name)
    except NotFound:
        own = next(
            (
                s
                for s in hv.store.read(agent_sessions.sessions, limit=10_000)
                if s.id.startswith(name)
            ),
            None,
        )
        if own is None or len(name) < MIN_LENGTH:
            raise
        return Transcript(*transcript_of(own), own.agent, stream_of(hv, own.agent), own.id)
    number = attempt or latest_output(hv, task)
    session = _session_of(hv, task, number)
    if session is None:
        return Transcript(task, number)
    location = (task, number) if session.task else transcript_of(session)
    return Transcript(*location, session.agent, stream_of(hv, session.agent), session.id)


def read(hv: Context, transcript: Transcript, start: int = 0, most: int = 1 << 20) -> bytes:
    """A piece of a stored output. NotFound: it is not stored here."""
    if hv.outputs.size(transcript.task, transcript.attempt) is None:
        raise NotFound(hv.outputs.where(transcript.task, transcript.attempt))
    return hv.outputs.read(transcript.task, transcript.attempt, start, most)


def setup_output(hv: Context, transcript: Transcript) -> bytes:
    """What setting up the clone of an attempt has printed."""
    path = hv.outputs.setup_path(transcript.task, transcript.attempt)
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        raise NotFound(
            f"no setup ran here for {transcript.task}, attempt {transcript.attempt} "
            "(see [workspace] in `hv config`)."
        ) from None


def patch(hv: Context, transcript: Transcript) -> bytes:
    """The patch from an agent's scratch copy. NotFound: no changes, or no scratch copy."""
    path = hv.outputs.path(transcript.task, transcript.attempt).removesuffix(".log") + ".patch"
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        raise NotFound(
            f"no patch stored here for {transcript.task}, attempt {transcript.attempt}: it changed "
            f"nothing, or was not run with --scratch."
        ) from None


def still_runs(hv: Context, transcript: Transcript) -> bool:
    """Whether the output may still grow."""
    if transcript.session and transcript.task == transcript.session:
        return any(session.id == transcript.session for session in live_sessions(hv))
    task = hv.store.read(queries.task, transcript.task)
    return task.state == IN_PROGRESS and task.attempts == transcript.attempt


def _session_of(hv: Context, task: str, attempt: int) -> AgentSession | None:
    """The session of an attempt, or that of the pull agent that claimed the task."""
    own = [
        session
        for session in hv.store.read(agent_sessions.sessions, task=task)
        if session.attempt == attempt
    ]
    if own:
        return own[0]
    tries = (
        session
        for session in hv.store.read(queries.detail, task).attempts
        if session.number == attempt
    )
    claim = next(tries, None)
    if claim is None or hv.outputs.size(task, attempt) is not None:
        return None
    for session in hv.store.read(agent_sessions.sessions, worker=claim.worker):
        if session.started_at <= claim.claimed_at <= (session.ended_at or claim.claimed_at):
            return session
    return None
