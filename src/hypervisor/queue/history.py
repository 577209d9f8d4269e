"""Past attempts, for preflight, the report of a batch and the learner."""

from __future__ import annotations

from hypervisor.core.records import NamedTuple


class AttemptLine(NamedTuple):
    """One attempt of a batch; `ended_at` and `outcome` are None while it runs."""

    task: str
    number: int
    name: str  # of the worker
    worker: str
    claimed_at: int
    ended_at: int | None
    outcome: str | None
    cpu_ms: int | None
    peak_kb: int | None


class Totals(NamedTuple):
    """All tasks and attempts of a batch, added up; zeros before the first attempt."""

    states: dict[str, int]
    attempts: int
    milliseconds: int
    cpu_ms: int
    peak_kb: int
    begun: int  # the first of them
    ended: int  # the last of them; now, if it is running


class Experience(NamedTuple):
    """Averages of earlier attempts: duration in milliseconds, and bytes of output."""

    attempts: int
    milliseconds: int | None
    output: int | None


class EndedAttempt(NamedTuple):
    """The usage of an attempt that has ended; the last three fields are for agents."""

    task: str
    number: int
    outcome: str
    cpu_ms: int | None
    peak_kb: int | None
    type: str
    created_at: int  # of its task
    host: str
    agent: str
    tokens: int = 0
    cost_micros: int | None = None
    limited: bool = False  # it hit a rate limit of its provider
