"""Lanes: what a claim can filter by is what decides a task's lane.

All ready tasks of one lane are equally claimable for a given caller, so a
claim looks only at the head of each lane that has ready tasks.
"""

from typing import NamedTuple


class Lane(NamedTuple):
    batch: str
    type: str
    branch: str
    priority: str
    requires: tuple[str, ...]
    assignee: str
    keyed: bool
    paused: bool = False  # nobody may claim from it for now; not part of its identity

    @property
    def id(self) -> int:
        """A number made from the content, so that every process finds the same one."""
        from hashlib import blake2b  # only adding needs it; it takes its time to load

        text = "\0".join((*self[:4], "\1".join(self.requires), self.assignee, str(int(self.keyed))))
        return int.from_bytes(blake2b(text.encode(), digest_size=6).digest(), "big") >> 1


class ClaimFilter(NamedTuple):
    """Which tasks a caller wants and is able to do."""

    batch: str | None = None
    types: tuple[str, ...] = ()
    branch: str | None = None
    priorities: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    assignee: str | None = None


def may_claim(lane: Lane, wanted: ClaimFilter, caller: str) -> bool:
    """Whether `caller` may take tasks of this lane.

    A task with an assignee is only for that assignee; asking for one by name
    leaves the unassigned tasks to others.
    """
    return (
        not lane.paused
        and (wanted.batch is None or lane.batch == wanted.batch)
        and (not wanted.types or lane.type in wanted.types)
        and (wanted.branch is None or lane.branch == wanted.branch)
        and (not wanted.priorities or lane.priority in wanted.priorities)
        and set(lane.requires) <= set(wanted.capabilities)
        and (
            lane.assignee in ("", caller)
            if wanted.assignee is None
            else lane.assignee == wanted.assignee
        )
    )
