"""What agents need of the ledger: their sessions, the brakes of their accounts, cursors."""

from __future__ import annotations

from collections.abc import Sequence

from hypervisor.agents.cooldown import Cooldown
from hypervisor.agents.session import AgentSession, NewSession, Spent
from hypervisor.agents.sql import cooldowns
from hypervisor.agents.sql import sessions as agent_sessions
from hypervisor.agents.stream_state import Tokens
from hypervisor.notifications.sql import cursors
from hypervisor.queue.event import Cursor
from hypervisor.queue.lease import Token, Usage
from hypervisor.queue.sql import settlement
from hypervisor.store.ledger_core import LedgerCore


class AgentLedger(LedgerCore):
    # Sessions

    def open_session(self, new: NewSession, now: int | None = None) -> str:
        at = self._at(now)
        return self._write(lambda s: agent_sessions.open_session(s, new, at), durable=False)

    def hear_session(
        self,
        id: str,
        session: str,
        tokens: Tokens,
        cost_micros: int | None,
        estimated: bool,
        turns: int,
        now: int | None = None,
    ) -> None:
        """What the stream has told so far. Once the session is closed this changes nothing."""
        self._write(
            lambda s: agent_sessions.hear(s, id, session, tokens, cost_micros, estimated, turns),
            durable=False,
        )

    def close_session(
        self,
        id: str,
        outcome: str,
        tokens: Tokens,
        cost_micros: int | None,
        estimated: bool,
        turns: int,
        now: int | None = None,
        denied: Sequence[str] = (),
    ) -> None:
        """How it ended; the first word on that stays."""
        at = self._at(now)
        self._write(
            lambda s: agent_sessions.close(
                s, id, outcome, tokens, cost_micros, estimated, turns, denied, at
            )
        )

    def record_usage(self, token: Token, usage: Usage) -> None:
        """What an attempt cost whose claim the agent had ended itself."""
        self._write(lambda s: settlement.set_usage(s, token, usage), durable=False)

    def sessions(
        self,
        batch: str | None = None,
        task: str | None = None,
        worker: str | None = None,
        limit: int = 100,
    ) -> list[AgentSession]:
        return self._db.read(lambda s: agent_sessions.sessions(s, batch, task, worker, limit))

    def settled_sessions(self, ids: Sequence[str]) -> frozenset[str]:
        """Those of these that have ended, and with them all tasks that their worker claimed."""
        return self._db.read(lambda s: agent_sessions.settled(s, ids)) if ids else frozenset()

    def spent(self, batch: str | None = None, task: str | None = None, since: int = 0) -> Spent:
        return self._db.read(lambda s: agent_sessions.spent(s, batch, task, since))

    # Brakes

    def set_brake(self, brake: Cooldown, actor: str, now: int | None = None) -> None:
        """Let an account rest. One that rests for longer already goes on doing so."""
        at = self._at(now)
        self._write(lambda s: cooldowns.set_brake(s, brake, actor, at))

    def lift_brake(
        self, account: str, actor: str, now: int | None = None, ended: bool = False
    ) -> bool:
        """With `ended`, only if its time is over: another agent may just have set a new one."""
        at = self._at(now)
        return self._write(lambda s: cooldowns.lift_brake(s, account, actor, at, ended))

    def brakes(self) -> list[Cooldown]:
        return self._db.read(cooldowns.brakes)

    # Cursors

    def cursor(self, name: str) -> int:
        return self._db.read(lambda s: cursors.cursor(s, name))

    def cursors(self) -> list[Cursor]:
        return self._db.read(cursors.cursors)

    def move_cursor(self, name: str, number: int, now: int | None = None) -> None:
        at = self._at(now)
        self._write(lambda s: cursors.move(s, name, number, at), durable=False)
