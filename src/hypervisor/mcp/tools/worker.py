"""The tools of a worker: claim, keep alive, leave evidence, end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread
from pydantic import Field

from hypervisor.batches.plans.propose import forget_proposals, propose
from hypervisor.batches.reduce_input import write_reduce_input
from hypervisor.core.errors import HypervisorError, InvalidInput, LeaseLost, WrongState
from hypervisor.inputs.task_files.write_back import write_back
from hypervisor.mcp.answers import (
    Beaten,
    Claim,
    Claimed,
    Ended,
    Noted,
    claimed,
    ended,
    without_empty,
)
from hypervisor.mcp.claims import ClaimRegistry
from hypervisor.mcp.tool import ADD, CHANGE, Offer
from hypervisor.queue import claim as claims
from hypervisor.queue.lease import DEFAULT_LEASE, MOST_PER_CLAIM, Lease
from hypervisor.queue.receipts import receipt

Token = Annotated[str, Field(description="needed after claim_next_task")]
Answer = TypeVar("Answer")
EMPTY = "nothing to claim: end with the line QUEUE EMPTY"
ENOUGH = "you have had all tasks of this run: end with the line QUEUE EMPTY"
NOT_KNOWN = Claim(tasks=[], note="nothing was claimed: call claim_next_task for the next one")
NOT_BACK = (
    "nobody else is waiting for it: complete it, or block it and say why. Nothing was changed."
)
NO_MORE = "the one task of this run has ended: say COMPLETED or BLOCKED and end"


class WorkerTools:
    def __init__(self, registry: ClaimRegistry) -> None:
        self.registry, self.hv = registry, registry.hv

    def offers(self) -> tuple[Offer, ...]:
        return (
            Offer(self.claim_next_task, ADD),
            Offer(self.complete_task, CHANGE),
            Offer(self.block_task, CHANGE),
            Offer(self.fail_task, CHANGE),
            Offer(self.release_task, CHANGE),
            Offer(self.append_receipt, ADD),
            Offer(self.propose_action, ADD),
            Offer(self.heartbeat, CHANGE),
        )

    async def claim_next_task(
        self,
        *,
        caller: Annotated[str, Field(description="your name, such as gemini")] = "",
        batch: str = "",
        types: Sequence[str] = (),
        branch: str = "",
        capabilities: Annotated[Sequence[str], Field(description="what you can do")] = (),
        limit: Annotated[int, Field(ge=1, le=100)] = 1,
    ) -> Claim:
        """Take the best waiting task; it is yours alone until you end it with its token.
        An empty list means there is nothing to do."""
        take = partial(
            self.registry.claim,
            caller,
            limit,
            DEFAULT_LEASE,
            batch=batch,
            types=types,
            branch=branch,
            capabilities=capabilities,
        )
        leases = await self._unless_cancelled(take, lambda leases: leases)
        return await anyio.to_thread.run_sync(self._claim, leases)

    async def complete_task(
        self,
        *,
        result: Annotated[Any, Field(description="the result, any JSON")] = None,
        summary: str = "",
        category: str = "",
        receipts: Annotated[Sequence[str], Field(description="evidence, one line each")] = (),
        claim_next: Annotated[bool, Field(description="take another like it too")] = False,
        token: Token = "",
    ) -> Ended:
        """Finish a claimed task. Twice gives the first answer."""
        known = self.registry.remembers(token)
        finish = partial(
            self._finish,
            token,
            result,
            without_empty(summary=summary, category=category),
            receipts,
            claim_next,
        )
        turn = await self._unless_cancelled(finish, lambda turn: turn.leases)
        answer = ended(turn.settled[0])
        if not claim_next:
            return answer
        if not known:
            return Ended(**answer, **NOT_KNOWN)
        claim: Claim = await anyio.to_thread.run_sync(self._claim, turn.leases)
        return Ended(**answer, **claim)

    def block_task(
        self,
        reason: str,
        evidence: str = "",
        next_step: Annotated[str, Field(description="what would unblock it")] = "",
        token: Token = "",
    ) -> Ended:
        """Stop a task that cannot go on; a person decides. Do not retry by yourself."""
        meant = self.registry.token(token)
        why = f"{reason} Evidence: {evidence}" if evidence else reason
        return self._end(meant, claims.block(self.hv, meant, why, next_step or None))

    def fail_task(
        self,
        reason: str,
        final: Annotated[bool, Field(description="do not try again")] = False,
        token: Token = "",
    ) -> Ended:
        """Report that the attempt failed; the task is tried again while retries are left."""
        meant = self.registry.token(token)
        return self._end(meant, claims.fail(self.hv, meant, reason, final))

    def release_task(self, reason: str = "", token: Token = "") -> Ended:
        """Give the task back unharmed for another worker."""
        if (
            self.registry.given.token or self.registry.given.keeper
        ):  # it would be handed out again at once
            raise WrongState(NOT_BACK)
        meant = self.registry.token(token)
        return self._end(meant, claims.release(self.hv, meant, reason))

    def append_receipt(self, text: str, token: Token = "") -> Noted:
        """Append one line of evidence that something was done; it is never changed."""
        written = receipt(self.hv, self.registry.token(token), [text])
        return Noted(task=written[0].task, count=len(written))

    def propose_action(
        self,
        action: Annotated[
            dict[str, Any],
            Field(
                description="{do: move|edit|write|create|delete|task, path, to|text|set|lines, "
                "title, why}"
            ),
        ],
        token: Token = "",
    ) -> Noted:
        """Propose a change instead of making it; a person approves it with the plan."""
        meant = self.registry.token(token)
        count = propose(self.hv, meant, action)
        return Noted(task=self.registry.task(meant), count=count)

    def heartbeat(self, tokens: Sequence[str] = ()) -> Beaten:
        """Keep claims alive through long work; lost ones have ended: stop working on them."""
        if len(tokens) > MOST_PER_CLAIM:
            raise InvalidInput(f"{len(tokens):,} tokens, at most {MOST_PER_CLAIM:,} in one call.")
        beat = claims.heartbeat(self.hv, tokens or [self.registry.token("")])
        return Beaten(alive=list(beat.alive), lost=list(beat.lost))

    def _claim(self, leases: Sequence[Lease]) -> Claim:
        tasks: list[Claimed] = []
        trouble = ""
        for lease in leases:
            try:
                tasks.append(claimed(write_reduce_input(self.hv, lease)))
            except (OSError, HypervisorError) as error:
                if self.registry.given.token:  # not ours to give back
                    raise
                trouble = f"the results for {lease.task.id} could not be put together: {error}"
                self.registry.give_back([lease], trouble)
        return Claim(tasks=tasks) if tasks else Claim(tasks=[], note=self._why_none(trouble))

    def _why_none(self, trouble: str) -> str:
        given = self.registry.given
        if trouble:
            note = f"{trouble.rstrip('.')}. It was given back: end with the line QUEUE EMPTY"
        elif given.token:
            note = NO_MORE
        else:
            note = ENOUGH if self.registry.spent else EMPTY
        return note

    def _finish(
        self,
        token: str,
        result: Any,
        said: dict[str, Any],
        receipts: Sequence[str],
        claim_next: bool,
    ) -> claims.Turn:
        meant = self.registry.token(token)
        result = claims.checked_result(self.hv, meant, result)
        whole = {**_object(result), **said} if said else result
        if receipts:
            with suppress(LeaseLost):  # said before, or too late: the completion tells
                receipt(self.hv, meant, receipts)
        if claim_next:
            turn = self.registry.complete_and_claim(meant, whole)
        else:
            turn = claims.Turn((claims.complete(self.hv, meant, whole, proposals=True),), ())
        self._after(meant)
        return turn

    async def _unless_cancelled(
        self, work: Callable[[], Answer], taken: Callable[[Answer], Sequence[Lease]]
    ) -> Answer:
        """Nobody hears the answer to a call that was cancelled: what it took is given back."""
        done = await anyio.to_thread.run_sync(work)
        try:
            await anyio.lowlevel.checkpoint()
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self.registry.give_back, taken(done))
            raise
        return done

    def _end(self, token: str, settled: Any) -> Ended:
        self._after(token)
        return ended(settled)

    def _after(self, token: str) -> None:
        self.registry.drop(token)
        forget_proposals(self.hv, token)
        write_back(self.hv, self.registry.task(token), edits=True)


def _object(result: Any) -> dict[str, Any]:
    if isinstance(result, dict):
        return result
    return {} if result is None else {"result": result}
