"""What agents need of the ledger: their sessions, the brakes of their accounts, cursors."""

from __future__ import annotations

from collections.abc import Sequence

from hypervisor.domain.agents.brake import Brake
from hypervisor.domain.agents.heard import Tokens
from hypervisor.domain.agents.session import AgentSession, NewSession, Spent
from hypervisor.domain.event import Cursor
from hypervisor.store import agent_sessions, braking, cursors
from hypervisor.store.ledger_core import LedgerCore


class AgentLedger(LedgerCore):
    # Sessions

    def open_session(self, new: NewSession, now: int | None = None) -> str:
        at = self._at(now)
        return self._write(lambda s: agent_sessions.open_session(s, new, at), durable=False)

    def hear_session(
        self, id: str, session: str, tokens: Tokens, cost_micros: int | None, estimated: bool,
        turns: int, now: int | None = None,
    ) -> None:  # fmt: skip
        """What the stream has told so far. Once the session is closed this changes nothing."""
        self._write(
            lambda s: agent_sessions.hear(s, id, session, tokens, cost_micros, estimated, turns),
            durable=False,
        )

    def close_session(
        self, id: str, outcome: str, tokens: Tokens, cost_micros: int | None, estimated: bool,
        turns: int, now: int | None = None,
    ) -> None:  # fmt: skip
        """How it ended; the first word on that stays."""
        at = self._at(now)
        self._write(
            lambda s: agent_sessions.close(
                s, id, outcome, tokens, cost_micros, estimated, turns, at
            )
        )

    def sessions(
        self, batch: str | None = None, task: str | None = None, worker: str | None = None,
        limit: int = 100,
    ) -> list[AgentSession]:  # fmt: skip
        return self._db.read(lambda s: agent_sessions.sessions(s, batch, task, worker, limit))

    def settled_sessions(self, ids: Sequence[str]) -> frozenset[str]:
        """Those of these that have ended, and with them all tasks that their worker claimed."""
        return self._db.read(lambda s: agent_sessions.settled(s, ids)) if ids else frozenset()

    def spent(self, batch: str | None = None, task: str | None = None, since: int = 0) -> Spent:
        return self._db.read(lambda s: agent_sessions.spent(s, batch, task, since))

    # Brakes

    def set_brake(self, brake: Brake, actor: str, now: int | None = None) -> None:
        """Let an account rest. One that rests for longer already goes on doing so."""
        at = self._at(now)
        self._write(lambda s: braking.set_brake(s, brake, actor, at))

    def lift_brake(self, account: str, actor: str, now: int | None = None) -> bool:
        at = self._at(now)
        return self._write(lambda s: braking.lift_brake(s, account, actor, at))

    def brakes(self) -> list[Brake]:
        return self._db.read(braking.brakes)

    # Cursors

    def cursor(self, name: str) -> int:
        return self._db.read(lambda s: cursors.cursor(s, name))

    def cursors(self) -> list[Cursor]:
        return self._db.read(cursors.cursors)

    def move_cursor(self, name: str, number: int, now: int | None = None) -> None:
        at = self._at(now)
        self._write(lambda s: cursors.move(s, name, number, at), durable=False)
