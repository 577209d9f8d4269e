"""The commit that the tasks of a batch start from: decided when the batch is submitted, so that
what the user does afterwards in the checkout does not change it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hypervisor.core.errors import InvalidInput
from hypervisor.git.elsewhere import is_elsewhere, mirror_of
from hypervisor.git.hub import Hub, base_ref, open_hub
from hypervisor.git.preflight import check_clones
from hypervisor.git.repository import Repository, discover

if TYPE_CHECKING:
    from hypervisor.git.item_files import ItemFiles
    from hypervisor.queue.context import Context
    from hypervisor.runs.spec import RunSpec

COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def with_base(data_folder: str, spec: RunSpec, items: ItemFiles) -> RunSpec:
    """The spec of a batch that works in clones, checked, with the commit that it starts from; that
    commit is in the hub from now on. WorkspaceError, InvalidInput: it cannot work."""
    spec = check_clones(spec)
    items.check()
    repository = repository_of(spec)
    hub = open_hub(data_folder, repository)
    if spec.git.include_dirty:
        commit = hub.include_dirty(repository).commit
    else:
        commit = hub.resolve(spec.git.base or "HEAD")
    hub.keep_base(commit)
    return spec._replace(git=spec.git._replace(base=commit))


def base_of(hub: Hub, spec: RunSpec) -> str:
    """The commit that a batch starts from, in the hub; on a host that has not seen it yet, from
    the checkout there."""
    base = spec.git.base
    is_commit = COMMIT.fullmatch(base) is not None
    if is_commit and hub.refs(base_ref(base)):
        return base
    here = is_commit and hub.git.commit_of(base) is not None  # tidying has dropped the ref
    commit = base if here else hub.resolve(base or "HEAD")  # "": a batch of an earlier version
    hub.keep_base(commit)
    return commit


def repository_on(hv: Context, spec: RunSpec) -> Repository:
    """The repository of a batch, or its mirror here if it is on another host."""
    if is_elsewhere(spec, hv.probe.host()):
        return mirror_of(hv.places.data, spec)
    return repository_of(spec)


def repository_of(spec: RunSpec) -> Repository:
    repository = discover(spec.cwd)
    if repository is None:
        raise InvalidInput(f"{spec.cwd} is not in a git repository; --workspace clone needs one")
    return repository
