"""The row of one agent's run: opened at its start, kept up to date, closed with its outcome."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile
from typing import TYPE_CHECKING

from hypervisor.agents.budget import cost_micros
from hypervisor.agents.session import AgentSession, NewSession
from hypervisor.core.errors import StoreError

if TYPE_CHECKING:
    from hypervisor.agents.profile import Price
    from hypervisor.agents.stream_state import StreamState
    from hypervisor.ports import Store
    from hypervisor.queue.task import Attempt

OFTEN = 1.0  # seconds between two writes that tell no more than new figures
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


class SessionRecorder:
    def __init__(self, store: Store, new: NewSession, price: Price | None) -> None:
        self.id = store.open_session(new)
        self._store, self._price = store, price
        self._told: tuple[object, ...] = ()
        self._named = ""
        self._at = 0.0

    def update(self, state: StreamState, now: float) -> None:
        """The session's name at once, new figures not more often than they are worth it."""
        figures = (state.tokens, state.cost, state.turns)
        if state.session == self._named and (figures == self._told or now - self._at < OFTEN):
            return
        self._write(state)
        self._told, self._named, self._at = figures, state.session, now

    def close(self, outcome: str, state: StreamState) -> None:
        if state.session != self._named:
            self._write(state)  # a close tells no name
        cost, estimated = cost_micros(state, self._price)
        self._store.close_session(
            self.id,
            outcome,
            state.tokens,
            cost,
            estimated,
            state.turns,
            denied=tuple(dict.fromkeys(state.denied)),
        )

    def _write(self, state: StreamState) -> None:
        cost, estimated = cost_micros(state, self._price)
        self._store.hear_session(self.id, state.session, state.tokens, cost, estimated, state.turns)


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


def close_orphans(store: Store, runs: Iterable[AgentSession]) -> None:
    """Runs of a task that nobody closed: their worker was killed."""
    for run in runs:
        if run.outcome is None:
            try:
                store.close_session(
                    run.id, "crashed", run.tokens, run.cost_micros, run.estimated, run.turns
                )
            except StoreError:
                return
