"""Agent sessions: one row for each run of an agent program."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from hypervisor.agents.stream_state import StreamState, Tokens


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
