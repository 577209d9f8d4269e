"""Agent sessions: one row for each run of an agent program, from its start to its outcome."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

from hypervisor.agents.stream_state import StreamState, Tokens

if TYPE_CHECKING:
    from hypervisor.agents.profile import Price
    from hypervisor.queue.task import Attempt

MICROS = 1_000_000
# After these, a session is not worth going on with: it is over, gone, or never began.
OVER = ("completed", "settled", "lost_session", "refused", "bad_request", "auth", "mcp_dead")
UNHARMED = ("quota", "overload", "server_error", "network", "stopped", "lost_claim")
# The provider must have answered for these.
ANSWERED = (
    "completed",
    "settled",
    "blocked",
    "refused",
    "nothing_done",
    "tools_denied",
    "max_turns",
    "over_budget",
    "bad_request",
)
OUTAGE = ("overload", "server_error", "network", "stream_error")


class NewSession(NamedTuple):
    """A run of an agent that begins. `task` and `attempt` are empty where it claims by itself.

    `account` is the provider and a short digest of the key: what a quota belongs to.
    `resumes` is the session it goes on with, in the agent's own words."""

    agent: str
    account: str
    batch: str
    worker: str
    task: str = ""
    attempt: int = 0
    resumes: str = ""


class Figures(NamedTuple):
    """What a run of an agent has used."""

    tokens: Tokens = Tokens()
    cost_micros: int | None = None  # None: nobody knows
    estimated: bool = False
    turns: int = 0


class AgentSession(NamedTuple):
    """`session` is what the agent calls it, "" until it has said so. `outcome` is None while it
    runs. Money is in millionths, so that it adds up exactly; None where nobody knows."""

    id: str
    agent: str
    account: str
    batch: str
    worker: str
    task: str
    attempt: int
    resumes: str
    session: str
    started_at: int
    ended_at: int | None
    outcome: str | None
    tokens: Tokens
    cost_micros: int | None
    estimated: bool
    turns: int
    denied: tuple[str, ...] = ()  # tools that were refused to it

    @property
    def figures(self) -> Figures:
        return Figures(self.tokens, self.cost_micros, self.estimated, self.turns)


class Spent(NamedTuple):
    """What sessions cost together; `estimated` if part of the money is from a price table."""

    tokens: int = 0
    cost_micros: int = 0
    estimated: bool = False
    unpriced: int = 0  # sessions of which nobody knows the price


def resumed(runs: Iterable[AgentSession], session: str) -> StreamState:
    """What a run starts with that goes on with a session: the figures of its earlier runs."""
    earlier = [run for run in runs if run.session == session]
    tokens = [run.tokens for run in earlier]
    return StreamState(
        session=session,
        tokens_before=Tokens(
            sum(each.input for each in tokens),
            sum(each.output for each in tokens),
            sum(each.cached for each in tokens),
        ),
        cost_before=sum(run.cost_micros or 0 for run in earlier if not run.estimated) / 1e6,
    )


def cost_micros(state: StreamState, price: Price | None) -> tuple[int | None, bool]:
    """What a run cost, and whether that is an estimate from a price table."""
    if state.cost is not None and 0 <= state.cost < 1e9:
        return round(state.cost * MICROS), False
    if price is None:
        return None, False
    tokens = state.tokens
    # A price for a million tokens is the millionths that one token costs.
    cost = tokens.input * price.input + tokens.output * price.output + tokens.cached * price.cached
    return round(cost), True


def to_resume(runs: Iterable[AgentSession], agent: str) -> AgentSession | None:
    """The run of this agent, newest first, whose session the next one goes on with."""
    for run in runs:
        if run.agent != agent:
            continue
        if run.outcome in OVER or _in_vain(run):
            return None
        if run.session:
            return run
    return None


def _in_vain(run: AgentSession) -> bool:
    """It resumed a session and got nowhere: better to start anew than to try that for ever."""
    ended_badly = run.outcome is not None and run.outcome not in UNHARMED
    return bool(run.resumes) and ended_badly and not run.tokens.output


def given_back(runs: Iterable[AgentSession], attempts: Iterable[Attempt]) -> int:
    """How often in a row agents put the task back themselves: for ever, if nobody counts."""
    settled = {run.attempt for run in runs if run.outcome in ("settled", "lost_claim")}
    ended = [each for each in attempts if each.outcome is not None]
    back = (each.outcome == "released" and each.number in settled for each in reversed(ended))
    return sum(1 for _ in takewhile(bool, back))


def unreached(runs: Iterable[AgentSession]) -> list[AgentSession]:
    """The last runs of a task that an outage ended, newest first."""
    return list(takewhile(lambda run: run.outcome in OUTAGE, runs))


def got_through(run: AgentSession) -> bool:
    """Whether the provider answered it."""
    return run.tokens.output > 0 or run.outcome in ANSWERED
