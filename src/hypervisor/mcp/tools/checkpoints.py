"""Checkpoints: what waits for a person, and the decision they make.

The person is asked through the client where that can ask (elicitation). This file
does without postponed annotations: the SDK has to see which function asks.
"""

from typing import Annotated, Any, Literal

import anyio.to_thread
from mcp.server.mcpserver import Context as CallContext
from mcp.server.mcpserver import Elicit, ElicitationResult, Resolve
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from hypervisor.batches import review
from hypervisor.batches.checkpoint import Checkpoint
from hypervisor.batches.chunk import APPROVED, REJECTED
from hypervisor.mcp.answers import without_empty
from hypervisor.mcp.claims import ClaimRegistry
from hypervisor.mcp.tool import CHANGE, READ, Offer, ToolServer
from hypervisor.queue.context import Context

MOST_SHOWN = 10
MOST_FEW = 5
NOT_ASKED = (
    "a person has to decide, and this client cannot ask them: show them list_checkpoints, then "
    "call again with their decision."
)
Words = Literal["", "approve", "reject", "retry"]


class Checkpoints(TypedDict):
    checkpoints: list[dict[str, Any]]


class Decided(TypedDict):
    batch: str
    chunk: int
    said: str


class Decision(BaseModel):
    """What a person is asked, and answers."""

    decision: Literal["approve", "reject", "retry"] = Field(description="what becomes of it")
    note: str = Field(default="", description="why, or what to do otherwise")


async def asked(
    ctx: CallContext[Any, Any], batch: str, decision: Words, chunk: int, note: str
) -> Decision | Elicit[Decision]:
    """The decision that was given, or the question to ask the person."""
    if decision:
        return Decision(decision=decision, note=note)
    can = ctx.client_capabilities
    if can is None or can.elicitation is None:
        raise ToolError(NOT_ASKED)
    assert isinstance(ctx.mcp_server, ToolServer)  # the same for all clients but in its registry
    hv = ctx.mcp_server.registry.hv
    seen = await anyio.to_thread.run_sync(review.review, hv, batch, chunk or None)
    return Elicit(f"{_shown(seen)['headline']} Approve it?", Decision)


class CheckpointTools:
    def __init__(self, registry: ClaimRegistry) -> None:
        self.hv = registry.hv

    def offers(self) -> tuple[Offer, ...]:
        return Offer(self.list_checkpoints, READ), Offer(self.decide_checkpoint, CHANGE)

    def list_checkpoints(self, batch: str = "") -> Checkpoints:
        """Chunks that wait for a person's decision, with what came of them."""
        waiting = review.awaiting(self.hv, batch or None)[:MOST_SHOWN]
        return Checkpoints(
            checkpoints=[_shown(review.review(self.hv, b.id, chunk.number)) for b, chunk in waiting]
        )

    async def decide_checkpoint(
        self,
        answer: Annotated[ElicitationResult[Decision], Resolve(asked)],
        batch: str,
        decision: Annotated[
            Words, Field(description="the person's; empty: ask them through the client")
        ] = "",
        chunk: Annotated[int, Field(ge=0, description="0: the one that waits")] = 0,
        note: Annotated[str, Field(description="for retry: reaches the worker")] = "",
    ) -> Decided:
        """Record a person's decision on a chunk; then the next one runs."""
        if answer.action != "accept":
            raise ToolError("the person did not decide. Nothing was changed.")
        return await anyio.to_thread.run_sync(_decide, self.hv, batch, chunk or None, answer.data)


def _decide(hv: Context, batch: str, chunk: int | None, answer: Decision) -> Decided:
    if answer.decision == "retry":
        done = review.retry_chunk(hv, batch, answer.note, chunk)
        said = f"{done.tasks} tasks go back into the queue"
    else:
        decision = APPROVED if answer.decision == "approve" else REJECTED
        done = review.decide(hv, batch, decision, chunk, answer.note)
        said = f"{done.decision}; {len(done.opened)} chunks opened"
    return Decided(batch=done.batch, chunk=done.chunk, said=said)


def _shown(found: Checkpoint) -> dict[str, Any]:
    chunk = found.chunk
    return without_empty(
        batch=found.batch,
        chunk=chunk.number,
        headline=f"{found.batch}, {chunk.label}: {chunk.total} tasks, "
        f"{len(found.failures)} not done; {found.next}.",
        categories=found.categories,
        proposals=found.proposals,
        failures=[
            f"{each.title[:80]}: {(each.reason or '')[:200]}" for each in found.failures[:MOST_FEW]
        ],
        samples=[
            without_empty(
                task=each.task,
                title=each.title[:80],
                category=each.category,
                rationale=each.rationale[:200],
                shown_because=each.why,
            )
            for each in found.samples[:MOST_FEW]
        ],
    )
