"""Rules about agent sessions: whether to resume one, and what it cost."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile
from typing import TYPE_CHECKING

from hypervisor.agents.stream_state import StreamState
from hypervisor.queue.agent_session import AgentSession, Tokens

if TYPE_CHECKING:
    from hypervisor.agents.profile import Price
    from hypervisor.queue.task import Attempt

MICROS = 1_000_000
# After these outcomes a session is not resumed: it is finished, gone, or never began.
# Earlier versions stored "refused" for "failed".
OVER = (
    "completed",
    "settled",
    "lost_session",
    "failed",
    "refused",
    "bad_request",
    "auth",
    "mcp_dead",
)
COMPLETED = ("completed", "settled")
UNHARMED = ("quota", "overload", "server_error", "network", "stopped", "lost_claim", "attached")
# The provider must have answered for these.
ANSWERED = (
    "completed",
    "settled",
    "blocked",
    "noted",
    "failed",
    "refused",
    "nothing_done",
    "tools_denied",
    "max_turns",
    "over_budget",
    "bad_request",
)
OUTAGE = ("overload", "server_error", "network", "stream_error")


def resumed(runs: Iterable[AgentSession], session: str) -> StreamState:
    """The figures that a resumed session starts with: the sums of its earlier runs."""
    earlier = [run for run in runs if run.session == session]
    tokens = [run.tokens for run in earlier]
    return StreamState(
        session=session,
        tokens_before=Tokens(
            sum(run_tokens.input for run_tokens in tokens),
            sum(run_tokens.output for run_tokens in tokens),
            sum(run_tokens.cached for run_tokens in tokens),
        ),
        cost_before=sum(run.cost_micros or 0 for run in earlier if not run.estimated) / 1e6,
    )


def cost_micros(state: StreamState, price: Price | None) -> tuple[int | None, bool]:
    """The cost, and whether it is an estimate from a price table."""
    if state.cost is not None and 0 <= state.cost < 1e9:
        return round(state.cost * MICROS), False
    if price is None:
        return None, False
    tokens = state.tokens
    # A price per million tokens is the cost of one token in millionths.
    cost = tokens.input * price.input + tokens.output * price.output + tokens.cached * price.cached
    return round(cost), True


def to_resume(
    runs: Iterable[AgentSession], agent: str, completed_too: bool = False
) -> AgentSession | None:
    """The latest run of this agent whose session the next one resumes. `completed_too`: also one
    that had completed the task."""
    for run in runs:
        if run.agent != agent:
            continue
        over = run.outcome in OVER and not (completed_too and run.outcome in COMPLETED)
        if over or _made_no_progress(run):
            return None
        if run.session:
            return run
    return None


def _made_no_progress(run: AgentSession) -> bool:
    """Whether it resumed a session without making progress: then a new one is started."""
    ended_badly = run.outcome is not None and run.outcome not in UNHARMED
    return bool(run.resumes) and ended_badly and not run.tokens.output


def releases_in_a_row(runs: Iterable[AgentSession], attempts: Iterable[Attempt]) -> int:
    """How many times in a row agents released the task themselves; stops an endless loop."""
    settled = {run.attempt for run in runs if run.outcome in ("settled", "lost_claim")}
    ended = [attempt for attempt in attempts if attempt.outcome is not None]
    back = (
        attempt.outcome == "released" and attempt.number in settled for attempt in reversed(ended)
    )
    return sum(1 for _ in takewhile(bool, back))


def unreached(runs: Iterable[AgentSession]) -> list[AgentSession]:
    """The last runs of a task that an outage ended, newest first."""
    return list(takewhile(lambda run: run.outcome in OUTAGE, runs))


def was_answered(run: AgentSession) -> bool:
    """Whether the provider answered."""
    return run.tokens.output > 0 or run.outcome in ANSWERED
