"""Lands verified commits where the user wants them, and reports success only once they are there.

    branch  a branch hv/… in the user's repository; nothing that is checked out moves
    local   the branch that is checked out, by fast-forward, if the checkout is clean
    push    a branch of a remote; afterwards the remote itself must show the commit
    pr      a branch hv/… of a remote, with a pull request

A ref moves only from the commit it is expected at. Landing the same commits again changes nothing.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from hypervisor.core.errors import GitFailed, InvalidInput
from hypervisor.core.records import NamedTuple
from hypervisor.git.checkout import branches_in_use, fast_forward
from hypervisor.git.command import Git, check_ref_name
from hypervisor.git.pull_request import PullRequest, find_forge
from hypervisor.git.remote import WHOLE, Remote, Unreachable

Mode = Literal["branch", "local", "push", "pr"]
OURS = "hv/"
STALE_LOCK = 30.0  # seconds; git holds the lock of a ref for milliseconds
HEADS = "refs/heads/"
# Objects go into the user's repository, and nothing else of it changes.
FETCH = (
    *("-c", "protocol.version=2", "-c", "fetch.writeCommitGraph=false"),
    *("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules"),
)

__all__ = ["Destination", "Landed", "Landing", "Mode", "Moved", "PullRequest", "Refused"]
__all__ += ["Unreachable", "find_tip", "holds", "land"]


class Landed(NamedTuple):
    """The commit is there; `where` says where, for people."""

    commit: str
    where: str


class Moved(NamedTuple):
    """The target is not where it was expected, but here."""

    tip: str | None


class Refused(NamedTuple):
    """It did not land, and trying again will not help until someone acts."""

    reason: str


Landing = Landed | Moved | Refused | Unreachable


@dataclass(frozen=True)
class Destination:
    """Where a lane lands. `repository` is the top folder of the user's checkout, `target` the
    branch to land on, `branch` our own: hv/…, where the commits stay if they cannot land (local)
    or come from (pr). In mode branch, both are the same. `lane` names its refs in the hub."""

    hub: Git
    repository: str
    lane: str
    target: str
    mode: Mode = "branch"
    branch: str = ""
    remote: str = "origin"
    pull_request: PullRequest = field(default=PullRequest("Changes by Hypervisor", ""))

    def __post_init__(self) -> None:
        for name in (self.target, self.own_branch, self.lane):
            check_ref_name(name)
        if self.mode != "push" and not self.own_branch.startswith(OURS):
            raise InvalidInput(f"the branch {self.own_branch!r} does not start with {OURS}")

    @property
    def own_branch(self) -> str:
        return self.branch or self.target

    @property
    def where(self) -> str:
        """The target, for people."""
        branch = self.own_branch if self.mode in ("branch", "pr") else self.target
        return f"{branch} at {self.remote}" if self.mode in ("push", "pr") else f"branch {branch}"

    @property
    def users(self) -> Git:
        return Git(self.repository)

    def at_remote(self) -> Remote:
        return Remote(self.hub, self.repository, self.remote)


def find_tip(destination: Destination) -> str | Unreachable | None:
    """The commit to stack on, present in the hub; None if the target does not exist yet."""
    match destination.mode:
        case "branch":
            return _bring(destination, destination.own_branch)
        case "local":
            return _bring(destination, destination.target)
        case "push":
            return destination.at_remote().fetch(destination.target)
        case "pr":
            tip = destination.at_remote().fetch(destination.own_branch)
            return destination.at_remote().fetch(destination.target) if tip is None else tip


def land(destination: Destination, expected_old: str | None, commit: str) -> Landing:
    """Move the target from `expected_old` (None: it does not exist) to a commit of the hub."""
    match destination.mode:
        case "branch":
            return _land_branch(destination, expected_old, commit)
        case "local":
            return _land_local(destination, expected_old, commit)
        case "push":
            return _push(destination, destination.target, expected_old, commit)
        case "pr":
            return _land_pull_request(destination, expected_old, commit)


def holds(destination: Destination, commit: str) -> bool | Unreachable:
    """Whether the target contains a commit."""
    tip = find_tip(destination)
    if tip is None or isinstance(tip, Unreachable):
        return False if tip is None else tip
    return destination.hub.succeeds("merge-base", "--is-ancestor", commit, tip)


def _bring(destination: Destination, branch: str) -> str | None:
    """The tip of one of the user's branches, fetched into the hub."""
    tip = destination.users.commit_of(HEADS + branch)
    if tip is not None and destination.hub.commit_of(tip) is None:
        source = destination.users.text("rev-parse", "--path-format=absolute", "--git-common-dir")
        destination.hub.run(*WHOLE, *FETCH, "--", source, tip)
    return tip


def _land_branch(destination: Destination, expected_old: str | None, commit: str) -> Landing:
    branch = destination.own_branch
    users, ref = destination.users, HEADS + branch
    tip = users.commit_of(ref)
    if tip == commit:
        return Landed(commit, f"branch {branch}")
    if tip != expected_old:
        return Moved(tip)
    if users.succeeds("symbolic-ref", "--quiet", ref):
        return Refused(f"{branch} is a symbolic ref; delete it, or choose another branch")
    if ref in (folders := branches_in_use(users)):
        return Refused(
            f"{branch} is checked out in {folders[ref]}; switch to another branch there "
            "(git switch -), then the merge queue continues"
        )
    users.run(*FETCH, "--", destination.hub.folder, commit)
    _clear_stale_lock(users, ref)
    try:
        old = expected_old or "0" * len(commit)
        users.run("update-ref", "--no-deref", "-m", "hv: land", ref, commit, old)
    except GitFailed as error:
        tip = users.commit_of(ref)
        if tip != expected_old:
            return Moved(tip)
        locked = ".lock'" in error.message
        return (
            Unreachable(f"{branch} is locked") if locked else Refused(f"{branch}: {error.message}")
        )
    return Landed(commit, f"branch {branch}")


def _clear_stale_lock(users: Git, ref: str) -> None:
    """The lock of one of our own branches, left by a git that was killed."""
    folder = users.text("rev-parse", "--path-format=absolute", "--git-common-dir")
    lock = os.path.join(folder, f"{ref}.lock")
    with suppress(OSError):
        if time.time() - os.stat(lock).st_mtime > STALE_LOCK:
            os.unlink(lock)


def _land_local(destination: Destination, expected_old: str | None, commit: str) -> Landing:
    target, users = destination.target, destination.users
    tip = users.commit_of(HEADS + target)
    if tip == commit:
        return Landed(commit, destination.where)
    if tip is None:
        return Refused(f"no such branch in {destination.repository}: {target}")
    if tip != expected_old:
        return Moved(tip)
    users.run(*FETCH, "--", destination.hub.folder, commit)
    folder = branches_in_use(users).get(HEADS + target)
    if folder is None:
        why_not = f"{target} is not checked out"
    else:
        why_not = fast_forward(folder, HEADS + target, tip, commit)
    if not why_not:
        return Landed(commit, destination.where)
    tip = users.commit_of(HEADS + target)
    if tip != expected_old:
        return Landed(commit, destination.where) if tip == commit else Moved(tip)
    return Refused(f"{target} was not moved: {why_not}. {_leave(destination, commit)}")


def _leave(destination: Destination, commit: str) -> str:
    """Put the commits on our own branch, if that only adds to it, and say so."""
    branch = destination.own_branch
    tip = destination.users.commit_of(HEADS + branch)
    left: Landing = Moved(tip)
    if tip is None or destination.users.succeeds("merge-base", "--is-ancestor", tip, commit):
        left = _land_branch(destination, tip, commit)
    if isinstance(left, Landed):
        return f"The commits are on the branch {branch}; to take them: git merge --ff-only {branch}"
    return f"The commits are in {destination.hub.folder}: {commit}"


def _push(destination: Destination, branch: str, expected_old: str | None, commit: str) -> Landing:
    """What counts is what the remote shows afterwards, not what the push printed."""
    remote = destination.at_remote()
    accepted, message = remote.push(branch, expected_old, commit)
    tip = remote.fetch(branch)
    if isinstance(tip, Unreachable):
        return Unreachable(f"{tip.reason}; whether the push arrived is checked when it answers")
    if tip is not None and destination.hub.succeeds("merge-base", "--is-ancestor", commit, tip):
        return Landed(commit, destination.where)
    if accepted:
        now = tip[:12] if tip else "gone"
        return Refused(
            f"{destination.remote} accepted the push but does not show it: {branch} is {now}"
        )
    return Moved(tip) if tip != expected_old else Refused(f"{destination.remote}: {message}")


def _land_pull_request(destination: Destination, expected_old: str | None, commit: str) -> Landing:
    remote, branch = destination.at_remote(), destination.own_branch
    forge = find_forge(destination.repository, remote.url)
    if isinstance(forge, str):
        return Refused(forge)
    old = remote.fetch(branch)
    if isinstance(old, Unreachable):
        return old
    if old != commit:
        tip = old if old is not None else remote.fetch(destination.target)
        if isinstance(tip, Unreachable):
            return tip
        if tip != expected_old:
            return Moved(tip)
        pushed = _push(destination, branch, old, commit)
        if not isinstance(pushed, Landed):
            return pushed
    url, problem = forge.open(branch, destination.target, commit, destination.pull_request)
    if problem:
        return Refused(f"{branch} was pushed to {destination.remote}, but {problem}")
    return Landed(commit, url)
