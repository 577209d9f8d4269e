"""Agent sessions, what they spent, and cooldowns of accounts."""

from __future__ import annotations

from collections.abc import Sequence

from hypervisor.agents.cooldown import Cooldown
from hypervisor.agents.sql import cooldowns
from hypervisor.queue.agent_session import AgentSession, Figures, NewSession, Spent, Tokens
from hypervisor.queue.lease import Token, Usage
from hypervisor.queue.sql import agent_sessions, settlement
from tests.support.ledger.base import LedgerBase


class AgentsLedger(LedgerBase):
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
        self._write(
            lambda s: agent_sessions.update(
                s, id, session, Figures(tokens, cost_micros, estimated, turns)
            ),
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
        at = self._at(now)
        self._write(
            lambda s: agent_sessions.close(
                s, id, outcome, Figures(tokens, cost_micros, estimated, turns), denied, now=at
            )
        )

    def record_usage(self, token: Token, usage: Usage) -> None:
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
        return self._db.read(lambda s: agent_sessions.settled(s, ids)) if ids else frozenset()

    def spent(self, batch: str | None = None, task: str | None = None, since: int = 0) -> Spent:
        return self._db.read(lambda s: agent_sessions.spent(s, batch, task, since))

    def start_cooldown(self, cooldown: Cooldown, actor: str, now: int | None = None) -> None:
        at = self._at(now)
        self._write(lambda s: cooldowns.start_cooldown(s, cooldown, actor, at))

    def end_cooldown(
        self, account: str, actor: str, now: int | None = None, ended: bool = False
    ) -> bool:
        at = self._at(now)
        return self._write(lambda s: cooldowns.end_cooldown(s, account, actor, at, ended))

    def cooldowns(self) -> list[Cooldown]:
        return self._db.read(cooldowns.every)
