"""Brings hubs up to date with the user's repositories before anything is decided by them."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hypervisor.core.errors import HypervisorError
from hypervisor.git.hub import hub_path, open_hub
from hypervisor.git.repository import discover

if TYPE_CHECKING:
    from hypervisor.queue.context import Context
    from hypervisor.queue.task import Batch

logger = logging.getLogger("hypervisor.git")


def refresh_hubs(hv: Context, batches: Sequence[Batch]) -> set[str]:
    """Fetch the user's branches and tags into the hubs of these batches; returns the paths of those
    hubs that are up to date now. What a hub that is not knows about branches proves nothing."""
    folders = {batch.spec["cwd"] for batch in batches if _works_in_clones(batch.spec)}
    fresh: set[str] = set()
    for folder in sorted(folders):
        try:
            repository = discover(folder) if os.path.isdir(folder) else None
            if repository is None:
                continue
            path = hub_path(hv.places.data, repository)
            if path not in fresh and os.path.isdir(path):
                fresh.add(open_hub(hv.places.data, repository).path)
        except (HypervisorError, OSError) as error:
            logger.info("%s: %s", folder, error)
    return fresh


def _works_in_clones(spec: object) -> bool:
    return isinstance(spec, dict) and spec.get("workspace") == "clone" and bool(spec.get("cwd"))
