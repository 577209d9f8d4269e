"""The tools for checkpoints: list them, and record a person's decision.

The person is asked through the client if it can ask (elicitation). This file
does without postponed annotations: the SDK has to see which function asks.
"""

from typing import TYPE_CHECKING, Annotated, Any, Literal

import anyio.to_thread
from mcp.server.mcpserver import Context as CallContext
from mcp.server.mcpserver import Elicit, ElicitationResult, Resolve
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from hypervisor.core.text import pluralize
from hypervisor.mcp.answers import without_empty
from hypervisor.mcp.claims import ClaimRegistry
from hypervisor.mcp.tool import CHANGE, READ, Offer, ToolServer
from hypervisor.queue.context import Context

if TYPE_CHECKING:
    from hypervisor.batches.checkpoint import Checkpoint

MAX_SHOWN = 10
MAX_FEW = 5
NOT_ASKED = (
    "a person must decide, and this client cannot ask them: show them the answer of "
    "list_checkpoints, then call again with their decision."
)
Words = Literal["", "approve", "reject", "retry"]


class Checkpoints(TypedDict):
    checkpoints: list[dict[str, Any]]


class Decided(TypedDict):
    batch: str
    chunk: int
    message: str


class Decision(BaseModel):
    """The form that a person fills in."""

    decision: Literal["approve", "reject", "retry"] = Field(description="what to do with the chunk")
    note: str = Field(default="", description="why, or what to change")


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
    from hypervisor.batches import review

    checkpoint = await anyio.to_thread.run_sync(review.review, hv, batch, chunk or None)
    return Elicit(f"{_shown(checkpoint)['headline']} Approve it?", Decision)


class CheckpointTools:
    def __init__(self, registry: ClaimRegistry) -> None:
        self.hv = registry.hv

    def offers(self) -> tuple[Offer, ...]:
        return Offer(self.list_checkpoints, READ), Offer(self.decide_checkpoint, CHANGE)

    def list_checkpoints(self, batch: str = "") -> Checkpoints:
        """List the chunks that are waiting for a person's decision, with their results."""
        from hypervisor.batches import review

        waiting = review.awaiting(self.hv, batch or None)[:MAX_SHOWN]
        return Checkpoints(
            checkpoints=[_shown(review.review(self.hv, b.id, chunk.number)) for b, chunk in waiting]
        )

    async def decide_checkpoint(
        self,
        answer: Annotated[ElicitationResult[Decision], Resolve(asked)],
        batch: str,
        decision: Annotated[
            Words, Field(description="the person's decision; empty: ask through the client")
        ] = "",
        chunk: Annotated[int, Field(ge=0, description="0: the one that is waiting")] = 0,
        note: Annotated[str, Field(description="the reason; with retry, for the worker")] = "",
    ) -> Decided:
        """Record a person's decision on a chunk; then the next chunk runs."""
        if answer.action != "accept":
            raise ToolError("the person made no decision. Nothing was changed.")
        return await anyio.to_thread.run_sync(_decide, self.hv, batch, chunk or None, answer.data)


def _decide(hv: Context, batch: str, chunk: int | None, answer: Decision) -> Decided:
    from hypervisor.batches import review

    if answer.decision == "retry":
        done = review.retry_chunk(hv, batch, answer.note, chunk)
        outcome = f"{pluralize(done.tasks, 'task')} will be retried"
    else:
        decision: review.Decision = "approved" if answer.decision == "approve" else "rejected"
        done = review.decide(hv, batch, decision, chunk, answer.note)
        outcome = f"{done.decision}; {pluralize(len(done.opened), 'chunk')} opened"
    return Decided(batch=done.batch, chunk=done.chunk, message=outcome)


def _shown(checkpoint: "Checkpoint") -> dict[str, Any]:
    chunk = checkpoint.chunk
    return without_empty(
        batch=checkpoint.batch,
        chunk=chunk.number,
        headline=f"{checkpoint.batch}, {chunk.label}: {pluralize(chunk.total, 'task')}, "
        f"{len(checkpoint.failures)} not done; {checkpoint.next}.",
        categories=checkpoint.categories,
        proposals=checkpoint.proposals,
        failures=[
            f"{task.title[:80]}: {(task.reason or '')[:200]}"
            for task in checkpoint.failures[:MAX_FEW]
        ],
        samples=[
            without_empty(
                task=sample.task,
                title=sample.title[:80],
                category=sample.category,
                rationale=sample.rationale[:200],
                shown_because=sample.why,
            )
            for sample in checkpoint.samples[:MAX_FEW]
        ],
    )
