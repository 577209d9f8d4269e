"""Agent sessions: one for each run of an agent program, from its start to its outcome."""

from __future__ import annotations

from hypervisor.core.records import NamedTuple


class Tokens(NamedTuple):
    """`input` counts tokens that were not in the provider's cache, `cached` those that were."""

    input: int = 0
    output: int = 0
    cached: int = 0

    def plus(self, other: Tokens) -> Tokens:
        return Tokens(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def minus(self, other: Tokens) -> Tokens:
        """The difference, never below zero."""
        return Tokens(*(max(mine - theirs, 0) for mine, theirs in zip(self, other, strict=True)))


class NewSession(NamedTuple):
    """A run of an agent that is starting. `task` and `attempt` are empty if it claims tasks itself.

    `account`, to which a quota belongs, is the provider and a short digest of the key. `resumes`
    is the agent's own id of the session it resumes. `spend_code` is a digest of the code with which
    it spends through the gateway, "" if it calls its model itself."""

    agent: str
    account: str
    batch: str
    worker: str
    task: str = ""
    attempt: int = 0
    resumes: str = ""
    spend_code: str = ""


class Figures(NamedTuple):
    """The usage of an agent's run."""

    tokens: Tokens = Tokens()
    cost_micros: int | None = None  # None: unknown
    estimated: bool = False
    turns: int = 0


class AgentSession(NamedTuple):
    """`session` is the agent's own id, "" until known. `outcome` is None while it runs. Costs are
    in millionths, so that they add up exactly; None if unknown."""

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
    denied: tuple[str, ...] = ()  # tools that it was not allowed to use

    @property
    def figures(self) -> Figures:
        return Figures(self.tokens, self.cost_micros, self.estimated, self.turns)


class Spent(NamedTuple):
    """The total cost of sessions; `estimated` if part of it comes from a price table."""

    tokens: int = 0
    cost_micros: int = 0
    estimated: bool = False
    unpriced: int = 0  # sessions without a known price


class DaySpent(NamedTuple):
    """What the runs of an agent that began on a day have cost."""

    agent: str
    day: int  # its first moment
    runs: int
    tokens: int
    cost_micros: int
