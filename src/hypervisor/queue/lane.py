"""Lanes and priorities: which tasks a caller may claim, and who goes first.

A task's lane consists of everything that a claim can filter by. A caller can
claim either all ready tasks of a lane or none, so a claim looks only at the
head of each lane that has ready tasks.

The order is one integer per task, smaller first, never recomputed. A level of priority is worth a
fixed head start, so waiting makes up for a lower priority: a low task outranks a medium one that
was added a week later, and nothing starves.
"""

from __future__ import annotations

from typing import Literal, cast, get_args

from hypervisor.core.errors import InvalidInput
from hypervisor.core.ids import ENTROPY_BITS
from hypervisor.core.records import NamedTuple

Priority = Literal["critical", "high", "medium", "low"]
PRIORITIES: tuple[Priority, ...] = get_args(Priority)
DEFAULT_PRIORITY: Priority = "medium"
_WEEK = 7 * 24 * 3600 * 1000
HEAD_START = {"critical": 0, "high": 4 * _WEEK, "medium": 5 * _WEEK, "low": 6 * _WEEK}


class Lane(NamedTuple):
    batch: str
    type: str
    branch: str
    priority: str
    requires: tuple[str, ...]
    assignee: str
    keyed: bool
    paused: bool = False  # not part of its identity
    merges: bool = False  # whether its batch does; not part of its identity

    @property
    def id(self) -> int:
        """A number made from the content, the same in every process."""
        from hashlib import blake2b  # slow to import, and only adding needs it

        text = "\0".join((*self[:4], "\1".join(self.requires), self.assignee, str(int(self.keyed))))
        return int.from_bytes(blake2b(text.encode(), digest_size=6).digest(), "big") >> 1


class ClaimFilter(NamedTuple):
    """Which tasks a caller wants and can do."""

    batch: str | None = None
    types: tuple[str, ...] = ()
    branch: str | None = None
    priorities: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    assignee: str | None = None


def may_claim(lane: Lane, wanted: ClaimFilter, caller: str) -> bool:
    """Whether `caller` may take tasks of this lane.

    A task with an assignee is only for that assignee; a claim for an assignee
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


def check_priority(text: object) -> Priority:
    if not isinstance(text, str) or text not in HEAD_START:
        shown = str(text)[:60]
        raise InvalidInput(f"unknown priority {shown!r}: use one of {', '.join(PRIORITIES)}.")
    return cast(Priority, text)


def rank(number: int, priority: str) -> int:
    """The claim order of the task whose id encodes `number`."""
    return number + (HEAD_START[priority] << ENTROPY_BITS)
