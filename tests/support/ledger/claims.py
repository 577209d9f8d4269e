"""Claims: taken, kept, settled and taken back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypervisor.queue import settle
from hypervisor.queue.lease import AttemptResult, ClaimRequest, Holder, Lease, SettledResult, Token
from hypervisor.queue.sql import agent_claims, claims, proposals, readiness, settlement
from tests.support.ledger.base import LedgerBase


class ClaimsLedger(LedgerBase):
    def claim(self, request: ClaimRequest, now: int | None = None) -> list[Lease]:
        return self.settle_and_claim((), request, now)[1]

    def settle(
        self, verdicts: Sequence[AttemptResult], now: int | None = None
    ) -> list[SettledResult]:
        return settle.settle(self._db, verdicts, self._at(now))

    def settle_and_claim(
        self,
        verdicts: Sequence[AttemptResult],
        request: ClaimRequest | None,
        now: int | None = None,
    ) -> tuple[list[SettledResult], list[Lease]]:
        return settle.settle_and_claim(self._db, verdicts, request, self._at(now))

    def heartbeat(self, tokens: Sequence[Token], lease: int, now: int | None = None) -> set[Token]:
        until = self._at(now) + lease
        return self._write(lambda s: claims.heartbeat(s, tokens, until), durable=False)

    def propose(
        self, token: Token, proposal: dict[str, Any], lease: int, now: int | None = None
    ) -> int:
        until = self._at(now) + lease
        return self._write(lambda s: proposals.add(s, token, proposal, until))

    def forget_proposals(self, token: Token) -> None:
        if self._db.read(lambda s: proposals.of_claim(s, token)):
            self._write(lambda s: proposals.forget(s, token), durable=False)

    def claims_of(self, worker: str) -> list[Lease]:
        return self._db.read(lambda s: agent_claims.live(s, worker))

    def batch_spec(self, token: Token) -> str:
        return self._db.read(lambda s: claims.batch_spec(s, token))

    def ended_claim(self, token: Token) -> str | None:
        return self._db.read(lambda s: claims.ended_claim(s, token))

    def holders(self, boot: str, now: int | None = None) -> list[Holder]:
        at = self._at(now)
        return self._db.read(lambda s: claims.holders(s, boot, at))

    def reclaim(
        self, holder: Holder, reason: str, now: int | None = None, started: bool = True
    ) -> bool:
        return self._db.write(settlement.reclaim, holder, reason, self._at(now), started)

    def due(self, now: int | None = None) -> bool:
        at = self._at(now)
        return self._db.read(lambda s: readiness.any_due(s, at))

    def promote_due(self, now: int | None = None) -> int:
        at = self._at(now)
        return self._write(lambda s: readiness.promote_due(s, at))
