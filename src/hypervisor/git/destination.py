"""Which merge lane the work of a batch goes into, and where that lane lands its commits."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hypervisor.core.errors import InvalidInput
from hypervisor.core.places import digest
from hypervisor.git.elsewhere import is_elsewhere
from hypervisor.git.hub import Hub
from hypervisor.git.landing import Destination, PullRequest
from hypervisor.git.lane_refs import LaneRefs
from hypervisor.git.repository import Repository
from hypervisor.queue.sql import queries

if TYPE_CHECKING:
    from hypervisor.queue.context import Context
    from hypervisor.runs.spec import RunSpec


def destination_of(
    hv: Context, hub: Hub, repository: Repository, spec: RunSpec, batch: str, task: str = ""
) -> Destination:
    """One lane per host, repository, mode and target; with a pull request per task, per task. Two
    hosts may have different repositories at the same path."""
    name = hv.store.read(queries.batch, batch).name
    own = f"hv/{safe_name(name)}"
    mode = spec.git.merge or "branch"
    target = spec.git.target or (own if mode == "branch" else checked_out(repository))
    place, root = [hv.probe.host(), hub.path], repository.root
    if is_elsewhere(spec, hv.probe.host()):
        place, root = [spec.git.host, spec.git.hub], spec.git.root
    identity = [*place, mode, target]
    request = PullRequest(name, f"The work of batch {name}.")
    if mode == "pr":
        identity.append(own)
        if spec.git.pr_per == "task" and task:
            title = hv.store.read(queries.task, task).title
            own, request = f"{own}-{task}", PullRequest(title, f"Task {task} of batch {name}.")
            identity.append(task)
    branch = target if mode == "branch" else own
    lane = f"{mode}-{digest(*identity)[:12]}"
    return Destination(hub.git, root, lane, target, mode, branch, pull_request=request)


def lane_tip(destination: Destination) -> str | None:
    """The newest commit that landed in the lane."""
    return LaneRefs(destination.hub, destination.lane).landed()


def safe_name(name: str) -> str:
    """The name of a batch as part of a branch's name."""
    safe = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")
    return safe[:60] or "batch"


def checked_out(repository: Repository) -> str:
    """The branch that is checked out."""
    ended = repository.git().run("symbolic-ref", "--quiet", "--short", "HEAD", ok=(0, 1))
    branch = ended.stdout.decode("utf-8", "surrogateescape").strip()
    if not branch:
        raise InvalidInput(
            f"no branch is checked out in {repository.root}; name the target with --target"
        )
    return branch
