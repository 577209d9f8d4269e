"""Refs of a hub that no batch needs any more: commits that batches started from, and what landed
last in a lane.

Such a ref goes if all its batches are deleted, or if they have been over for long and the user's
branches and tags contain its commit. So nothing but the ref is lost, and a later run into the same
batch finds the commit again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hypervisor.core.errors import WorkspaceError
from hypervisor.git import sql
from hypervisor.git.workspace import STATE, open_existing
from hypervisor.runs import sql as runs_sql
from hypervisor.runs.spec import GIT

if TYPE_CHECKING:
    from hypervisor.git.hub import Hub
    from hypervisor.queue.context import Context
    from hypervisor.queue.task import Batch

BASES, LANES = "refs/hv/bases/", "refs/hv/lanes/"


class UnusedRefs:
    """`before`: a batch that was over by then (in milliseconds) has been so for long."""

    def __init__(self, hv: Context, batches: Sequence[Batch], before: int) -> None:
        self._hv, self._before = hv, before
        self._over = {batch.id: self._is_over(batch.id) for batch in batches}
        self._bases: dict[str, set[str]] = {}  # with the batches that start there
        for batch in batches:
            if base := batch.spec.get(GIT["base"]) if isinstance(batch.spec, dict) else "":
                self._bases.setdefault(base, set()).add(batch.id)
        self._lanes = hv.store.read(sql.batches_of_lanes)
        self._cloned = _bases_of_clones(hv.places.data)

    def of(self, hub: Hub, *, is_fresh: bool) -> list[str]:
        """`is_fresh`: the hub has the user's branches as they are now."""
        unused = []
        for ref, commit in hub.refs(BASES, LANES).items():
            name = ref.split("/")[3]
            is_base = ref.startswith(BASES)
            batches = (self._bases if is_base else self._lanes).get(name, set())
            if is_base and commit in self._cloned:
                continue
            existing = [batch for batch in batches if batch in self._over]
            if not all(self._over[batch] for batch in existing):
                continue
            if not existing or (is_fresh and _users_have(hub, commit, ref)):
                unused.append(ref)
        return unused

    def _is_over(self, batch: str) -> bool:
        return not self._hv.store.read(runs_sql.not_ended_before, batch, self._before, "", 1)


def _users_have(hub: Hub, commit: str, ref: str) -> bool:
    """Whether the user's branches and tags contain a commit; for what was about to land, the
    commit below our record of it."""
    start = f"{commit}^" if ref.endswith("/landing") else commit
    words = ("rev-list", "--max-count=1", start, "--not", "--branches", "--tags", "--")
    return not hub.git.text(*words)


def _bases_of_clones(data: str) -> set[str]:
    folder = os.path.join(data, "git", "work")
    bases = set()
    for name in os.listdir(folder) if os.path.isdir(folder) else []:
        if name == STATE:
            continue
        try:
            workspace = open_existing(os.path.join(folder, name))
        except WorkspaceError:
            continue  # nobody knows where it started; it is kept, and so are its objects
        if workspace is not None:
            bases.add(workspace.base)
    return bases
