"""What the merge queue decides: about an entry, or about the whole lane."""

from __future__ import annotations

from hypervisor.core.records import NamedTuple
from hypervisor.git.stack import Strategy
from hypervisor.git.verify import Verdict


class Entry(NamedTuple):
    """Finished commits of a task that wait to be merged: those from `base` to `head`. `message`
    is that of the merge or squash commit."""

    id: str
    head: str
    base: str
    message: str
    strategy: Strategy = "merge"


class Verifying(NamedTuple):
    """These entries are stacked on `tip`, in this order, and verification starts."""

    entries: tuple[Entry, ...]
    tip: str


class EntryLanded(NamedTuple):
    """`commit` is on the target now. `already`: the target had the change before, so nothing new
    was merged. `where` names the target, or the pull request."""

    entry: Entry
    commit: str
    where: str
    verified: bool
    already: bool = False


class EntryConflicted(NamedTuple):
    """It conflicts with `tip`, which has landed."""

    entry: Entry
    tip: str
    paths: tuple[str, ...]
    message: str


class EntryFailed(NamedTuple):
    """Without it (`tip`) verification passes, with it (`commit`) verification failed, twice.
    `after`: how many other entries were merged before it, so that it may fail only together with
    these."""

    entry: Entry
    commit: str
    tip: str
    after: int
    verdict: Verdict
    reason: str


class FlakeFound(NamedTuple):
    """Verification of the same tree failed and then passed; no entry is rejected."""

    commit: str
    failed: Verdict
    passed: Verdict
    reason: str


class BaseFailed(NamedTuple):
    """Verification fails on the target itself: the lane has to pause. No entry is rejected."""

    tip: str
    verdict: Verdict
    reason: str


class TargetMoved(NamedTuple):
    """Someone else has moved the target: everything is stacked and verified again."""

    old: str | None
    new: str | None


class LandingRefused(NamedTuple):
    """The target did not take the commits: the lane has to pause. All entries stay queued."""

    reason: str


class TargetUnreachable(NamedTuple):
    """Nothing is known to have changed; try again later. All entries stay queued."""

    reason: str


class NotVerified(NamedTuple):
    """No verification is set: what lands now was not tested."""

    reason: str


Decision = (
    Verifying
    | EntryLanded
    | EntryConflicted
    | EntryFailed
    | FlakeFound
    | BaseFailed
    | TargetMoved
    | LandingRefused
    | TargetUnreachable
    | NotVerified
)
