"""Batches that start from uncommitted changes of the user (--include-dirty).

These changes are a commit of the hub. Below the work of tasks they are on a branch of ours, as a
commit of their own. On any other branch nothing lands until the user has committed them there:
otherwise they would look like the work of a task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypervisor.git.hub import UNCOMMITTED
from hypervisor.git.landing import Unreachable, find_tip
from hypervisor.git.stack import is_merged

if TYPE_CHECKING:
    from hypervisor.git.landing import Destination
    from hypervisor.git.workplace import Workplace


def changes_to_land(place: Workplace, destination: Destination) -> str:
    """The commit of the uncommitted changes that a batch started from, if the target does not
    have them; otherwise ""."""
    git = place.hub.git
    if not place.spec.git.include_dirty:
        return ""
    if git.text("log", "-1", "--format=%s", place.base, "--") != UNCOMMITTED:
        return ""  # there were none
    tip = find_tip(destination)
    if isinstance(tip, Unreachable) or (tip and is_merged(git, place.base, tip)):
        return ""  # a target that does not answer takes nothing anyway
    return place.base


def why_not_yet(place: Workplace, destination: Destination) -> str:
    """Why the work of a batch cannot land before the user acts, or ""."""
    if destination.mode == "branch" or not changes_to_land(place, destination):
        return ""
    target = destination.target
    push = " and push it" if destination.mode in ("push", "pr") else ""
    return (
        f"{target} does not have the uncommitted changes that the batch started from "
        f"(--include-dirty); commit them to {target}{push}"
    )
