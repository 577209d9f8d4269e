"""The tools of a worker: claim a task, extend the claim, add receipts, end it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, TypeVar, cast

import anyio
import anyio.lowlevel
import anyio.to_thread
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from hypervisor.batches.reduce_input import write_reduce_input
from hypervisor.core.errors import HypervisorError, InvalidInput, LeaseLost, WrongState
from hypervisor.mcp.answers import (
    Claim,
    Claimed,
    Completed,
    Ended,
    HeartbeatAnswer,
    NoteAnswer,
    claimed,
    ended,
    filled,
    message_line,
    without_empty,
)
from hypervisor.mcp.claims import ClaimRegistry
from hypervisor.mcp.tool import ADD, CHANGE, Offer
from hypervisor.queue import claim as claims
from hypervisor.queue.lease import DEFAULT_LEASE, MAX_PER_CLAIM, Lease
from hypervisor.queue.receipts import receipt

Token = Annotated[str, Field(description="needed after claim_next_task")]
Answer = TypeVar("Answer")
EMPTY = "nothing to claim: end with the line QUEUE EMPTY"
ENOUGH = "you have done all tasks of this run: end with the line QUEUE EMPTY"
NOT_KNOWN = Claim(tasks=[], note="nothing was claimed: call claim_next_task for the next one")
CANNOT_RELEASE = (
    "no other worker would take the task: complete it, or block it with a reason. Nothing was "
    "changed."
)
NOT_COMPLETED = (
    "The task is not completed yet: do what the note asks, then call complete_task again."
)
NO_MORE = "the only task of this run has ended: end with the line COMPLETED or BLOCKED"


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
        """Claim the next ready task; it is yours alone until you end it with its token."""
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
        claim_next: Annotated[
            bool, Field(description="also claim the next task of this kind")
        ] = False,
        token: Token = "",
    ) -> Completed:
        """Complete a claimed task. Repeating it is safe."""
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
            return cast("Completed", answer)
        if not known:
            return Completed(**answer, **NOT_KNOWN)
        claim: Claim = await anyio.to_thread.run_sync(self._claim, turn.leases)
        return Completed(**answer, **claim)

    def block_task(
        self,
        reason: str,
        evidence: str = "",
        next_step: Annotated[str, Field(description="what would unblock it")] = "",
        question: Annotated[str, Field(description="for a person")] = "",
        token: Token = "",
    ) -> Ended:
        """Block a task that cannot continue; a person decides. Do not retry it."""
        from hypervisor.queue.message import unblock_text

        held = self.registry.token(token)
        why = f"{reason} Evidence: {evidence}" if evidence else reason
        unblock = unblock_text(next_step, question) or None
        return self._end(held, claims.block(self.hv, held, why, unblock))

    def fail_task(
        self,
        reason: str,
        final: Annotated[bool, Field(description="do not retry")] = False,
        token: Token = "",
    ) -> Ended:
        """Report that the attempt failed; the task is retried if it has retries left."""
        held = self.registry.token(token)
        return self._end(held, claims.fail(self.hv, held, reason, final))

    def release_task(self, reason: str = "", token: Token = "") -> Ended:
        """Return the task to the queue for another worker; it counts as no failure."""
        # It would be handed to the same agent again at once.
        if self.registry.given.token or self.registry.given.keeper:
            raise WrongState(CANNOT_RELEASE)
        held = self.registry.token(token)
        return self._end(held, claims.release(self.hv, held, reason))

    def append_receipt(self, text: str, token: Token = "") -> NoteAnswer:
        """Add a line of evidence of what was done; it cannot be changed later."""
        written = receipt(self.hv, self.registry.token(token), [text])
        return NoteAnswer(task=written[0].task, count=len(written))

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
    ) -> NoteAnswer:
        """Propose a change instead of making it; a person has to approve it first."""
        from hypervisor.batches.plans.propose import propose

        held = self.registry.token(token)
        count = propose(self.hv, held, action)
        return NoteAnswer(task=self.registry.task(held), count=count)

    def heartbeat(self, tokens: Sequence[str] = ()) -> HeartbeatAnswer:
        """Extend claims during long work; those in `lost` have ended: stop working on them."""
        if len(tokens) > MAX_PER_CLAIM:
            raise InvalidInput(f"too many tokens: {len(tokens):,}, maximum {MAX_PER_CLAIM:,}.")
        beat = claims.heartbeat(self.hv, tokens or [self.registry.token("")])
        return HeartbeatAnswer(alive=list(beat.alive), lost=list(beat.lost))

    def _claim(self, leases: Sequence[Lease]) -> Claim:
        from hypervisor.queue.give_messages import give_messages

        tasks: list[Claimed] = []
        trouble, messages = "", list[str]()
        for lease in leases:
            try:
                tasks.append(claimed(write_reduce_input(self.hv, lease)))
                messages += map(message_line, give_messages(self.hv.store, lease))
            except (OSError, HypervisorError) as error:
                if self.registry.given.token:  # not ours to give back
                    raise
                trouble = f"the results for {lease.task.id} could not be combined: {error}"
                self.registry.give_back([lease], trouble)
        if not tasks:
            return Claim(tasks=[], note=self._why_none(trouble))
        return filled(Claim, tasks=tasks, note="\n".join(messages))

    def _why_none(self, trouble: str) -> str:
        given = self.registry.given
        if trouble:
            note = f"{trouble.rstrip('.')}. It was released: end with the line QUEUE EMPTY"
        elif given.token:
            note = NO_MORE
        else:
            note = ENOUGH if self.registry.spent else EMPTY
        return note

    def _finish(
        self,
        token: str,
        result: Any,
        fields: dict[str, Any],
        receipts: Sequence[str],
        claim_next: bool,
    ) -> claims.CompleteAndClaim:
        held = self.registry.token(token)
        if messages := self.registry.unread(held):
            raise ToolError("\n".join([*map(message_line, messages), NOT_COMPLETED]))
        result = claims.checked_result(self.hv, held, result)
        whole = {**_object(result), **fields} if fields else result
        if receipts:
            with suppress(LeaseLost):  # already reported, or too late: the completion says so
                receipt(self.hv, held, receipts)
        if claim_next:
            turn = self.registry.complete_and_claim(held, whole)
        else:
            turn = claims.CompleteAndClaim(
                (claims.complete(self.hv, held, whole, proposals=True),), ()
            )
        self._after(held)
        return turn

    async def _unless_cancelled(
        self, work: Callable[[], Answer], taken: Callable[[Answer], Sequence[Lease]]
    ) -> Answer:
        """Do the work; if the call is cancelled before it ends, release what it claimed."""
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
        from hypervisor.batches.plans.propose import forget_proposals

        self.registry.drop(token)
        forget_proposals(self.hv, token)
        self.hv.tasks_changed([self.registry.task(token)], ended=True)


def _object(result: Any) -> dict[str, Any]:
    if isinstance(result, dict):
        return result
    return {} if result is None else {"result": result}
