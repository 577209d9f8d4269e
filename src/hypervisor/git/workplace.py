"""What it takes to merge the work of a batch: its spec, the hub, where it starts and lands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypervisor.core.records import NamedTuple
from hypervisor.git.base import base_of, repository_on
from hypervisor.git.destination import destination_of
from hypervisor.git.hub import Hub, open_hub
from hypervisor.git.landing import Destination
from hypervisor.queue.sql import queries
from hypervisor.runs.spec import RunSpec, spec_from

if TYPE_CHECKING:
    from hypervisor.git.repository import Repository
    from hypervisor.queue.context import Context


class Workplace(NamedTuple):
    batch: str
    spec: RunSpec
    repository: Repository
    hub: Hub
    base: str

    def destination(self, hv: Context, task: str = "") -> Destination:
        """Where the work of a task lands."""
        return destination_of(hv, self.hub, self.repository, self.spec, self.batch, task)


def open_workplace(hv: Context, batch: str) -> Workplace:
    """With the user's branches as they are now."""
    spec = spec_from(hv.store.read(queries.batch, batch).spec)
    repository = repository_on(hv, spec)
    hub = open_hub(hv.places.data, repository)
    return Workplace(batch, spec, repository, hub, base_of(hub, spec))
