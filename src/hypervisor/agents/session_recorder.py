"""Records agent sessions, from the start of a program to its outcome."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from hypervisor.agents.session import cost_micros
from hypervisor.agents.stream_state import StreamState
from hypervisor.core.errors import StoreError
from hypervisor.queue.agent_session import AgentSession, Figures, NewSession
from hypervisor.queue.sql import agent_sessions

if TYPE_CHECKING:
    from hypervisor.agents.outcome import OutcomeName
    from hypervisor.agents.profile import Price
    from hypervisor.store.database import Database

OFTEN = 1.0  # seconds between writes of figures


class SessionRecorder:
    def __init__(self, store: Database, new: NewSession, price: Price | None) -> None:
        self.id = store.write_unsynced(agent_sessions.open_session, new, store.now())
        self._store, self._price = store, price
        self._told: tuple[object, ...] = ()
        self._named = ""
        self._at = 0.0

    def update(self, state: StreamState, now: float) -> None:
        """Write the session's name at once, new figures only from time to time."""
        figures = (state.tokens, state.cost, state.turns)
        if state.session == self._named and (figures == self._told or now - self._at < OFTEN):
            return
        self._write(state)
        self._told, self._named, self._at = figures, state.session, now

    def close(self, outcome: OutcomeName, state: StreamState) -> None:
        if state.session != self._named:
            self._write(state)  # a close tells no name
        denied = tuple(dict.fromkeys(state.denied))
        self._store.write(
            agent_sessions.close,
            self.id,
            outcome,
            self._figures(state),
            denied,
            now=self._store.now(),
        )

    def _write(self, state: StreamState) -> None:
        self._store.write_unsynced(
            agent_sessions.update, self.id, state.session, self._figures(state)
        )

    def _figures(self, state: StreamState) -> Figures:
        return Figures(state.tokens, *cost_micros(state, self._price), state.turns)


def close_orphans(store: Database, runs: Iterable[AgentSession]) -> None:
    """Runs of a task left open because their worker was killed."""
    for run in runs:
        if run.outcome is None:
            try:
                store.write(agent_sessions.close, run.id, "crashed", run.figures, now=store.now())
            except StoreError:
                return
