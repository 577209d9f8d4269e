"""The row of one agent's run: opened at its start, told what is heard, closed with its outcome."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile
from typing import TYPE_CHECKING

from hypervisor.domain.agents.budgeting import cost_micros
from hypervisor.domain.agents.session import AgentSession, NewSession
from hypervisor.domain.errors import StoreError

if TYPE_CHECKING:
    from hypervisor.domain.agents.heard import Heard
    from hypervisor.domain.agents.profile import Price
    from hypervisor.domain.task import Attempt
    from hypervisor.ports import Store

OFTEN = 1.0  # seconds between two writes that tell no more than new figures
# After these, a session is not worth going on with: it is over, gone, or never began.
OVER = ("completed", "settled", "lost_session", "refused", "bad_request", "auth", "mcp_dead")
UNHARMED = ("quota", "overload", "stopped", "lost_claim")


class SessionRow:
    def __init__(self, store: Store, new: NewSession, price: Price | None) -> None:
        self.id = store.open_session(new)
        self._store, self._price = store, price
        self._told: tuple[object, ...] = ()
        self._named = ""
        self._at = 0.0

    def hear(self, heard: Heard, now: float) -> None:
        """The session's name at once, new figures not more often than they are worth it."""
        figures = (heard.tokens, heard.cost, heard.turns)
        if heard.session == self._named and (figures == self._told or now - self._at < OFTEN):
            return
        self._write(heard)
        self._told, self._named, self._at = figures, heard.session, now

    def close(self, outcome: str, heard: Heard) -> None:
        if heard.session != self._named:
            self._write(heard)  # a close tells no name
        cost, estimated = cost_micros(heard, self._price)
        self._store.close_session(self.id, outcome, heard.tokens, cost, estimated, heard.turns)

    def _write(self, heard: Heard) -> None:
        cost, estimated = cost_micros(heard, self._price)
        self._store.hear_session(self.id, heard.session, heard.tokens, cost, estimated, heard.turns)


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
