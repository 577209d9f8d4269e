"""Agent sessions: one row for each run of an agent program."""

from __future__ import annotations

from typing import NamedTuple

from hypervisor.domain.agents.heard import Tokens


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


class Spent(NamedTuple):
    """What sessions cost together; `estimated` if part of the money is from a price table."""

    tokens: int = 0
    cost_micros: int = 0
    estimated: bool = False
    unpriced: int = 0  # sessions of which nobody knows the price
