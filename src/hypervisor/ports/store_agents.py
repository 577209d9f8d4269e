"""What agents need of the store: their sessions, the brakes of their accounts, cursors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from hypervisor.agents.cooldown import Cooldown
from hypervisor.agents.session import AgentSession, NewSession, Spent
from hypervisor.agents.stream_state import Tokens
from hypervisor.queue.event import Cursor
from hypervisor.queue.lease import Token, Usage


class AgentStore(Protocol):
    def open_session(self, new: NewSession, now: int | None = None) -> str: ...
    def hear_session(
        self,
        id: str,
        session: str,
        tokens: Tokens,
        cost_micros: int | None,
        estimated: bool,
        turns: int,
        now: int | None = None,
    ) -> None: ...
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
    ) -> None: ...
    def record_usage(self, token: Token, usage: Usage) -> None: ...
    def sessions(
        self,
        batch: str | None = None,
        task: str | None = None,
        worker: str | None = None,
        limit: int = 100,
    ) -> list[AgentSession]: ...
    def settled_sessions(self, ids: Sequence[str]) -> frozenset[str]: ...
    def spent(self, batch: str | None = None, task: str | None = None, since: int = 0) -> Spent: ...

    def set_brake(self, brake: Cooldown, actor: str, now: int | None = None) -> None: ...
    def lift_brake(
        self, account: str, actor: str, now: int | None = None, ended: bool = False
    ) -> bool: ...
    def brakes(self) -> list[Cooldown]: ...

    def cursor(self, name: str) -> int: ...
    def cursors(self) -> list[Cursor]: ...
    def move_cursor(self, name: str, number: int, now: int | None = None) -> None: ...
