"""The tool for work in clones: the merge queue, what is in review, and what a task changed."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from hypervisor.mcp.answers import filled, without_empty
from hypervisor.mcp.claims import ClaimRegistry
from hypervisor.mcp.tool import READ, Offer
from hypervisor.queue import queries

MAX_SHOWN = 20
MAX_FILES = 100
MAX_DIFF = 12_000  # characters
MAX_REASON = 500


class Merges(TypedDict, total=False):
    lanes: list[dict[str, Any]]
    review: list[str]
    files: list[str]
    diff: str


class MergeTools:
    def __init__(self, registry: ClaimRegistry) -> None:
        self.registry, self.hv = registry, registry.hv

    def offers(self) -> tuple[Offer, ...]:
        return (Offer(self.get_merges, READ),)

    def get_merges(
        self,
        batch: str = "",
        task: Annotated[str, Field(description="show its diff")] = "",
    ) -> Merges:
        """The merge queue, and work in review."""
        if task:
            return self._diff(task)
        from hypervisor.git.queue_status import merge_queue

        lanes = [
            without_empty(
                target=lane.target,
                mode=lane.mode,
                paused=_short(lane.paused),
                tasks=[f"{each.task} {each.title[:80]}" for each in lane.tasks[:MAX_SHOWN]],
                count=len(lane.tasks),
            )
            for lane in merge_queue(self.hv, batch or None)
        ]
        review = queries.list_tasks(self.hv, ("review",), batch or None, limit=MAX_SHOWN)
        waiting = [f"{each.id} {each.title[:80]}: {_short(each.reason)}" for each in review]
        return filled(Merges, lanes=lanes, review=waiting)

    def _diff(self, task: str) -> Merges:
        from hypervisor.git.saved_work import diff

        found = diff(self.hv, self.registry.task(task))
        more = len(found.text) - MAX_DIFF
        rest = f"… ({more:,} more characters: hv diff {found.task})" if more > 0 else ""
        files = [f"{each.path} +{each.added} -{each.removed}" for each in found.files[:MAX_FILES]]
        return filled(Merges, files=files, diff=found.text[:MAX_DIFF] + rest)


def _short(reason: str | None) -> str:
    return (reason or "")[:MAX_REASON]
