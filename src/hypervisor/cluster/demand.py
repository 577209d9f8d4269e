"""What the ready tasks of a store need from its hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypervisor.cluster.scaling import AGENT_CPUS, COMMAND_CPUS, Need
from hypervisor.runs import sql
from hypervisor.runs.current_specs import CurrentSpecs

if TYPE_CHECKING:
    from hypervisor.queue.context import Context
    from hypervisor.runs.spec import Ready


def ready_needs(hv: Context) -> tuple[Need, ...]:
    """One for each batch with ready tasks, and each set of capabilities that they require."""
    specs = CurrentSpecs(hv)
    return tuple(_need(specs, ready) for ready in hv.store.read(sql.ready, None))


def _need(specs: CurrentSpecs, ready: Ready) -> Need:
    spec = specs.spec(ready.batch)
    learned = max((specs.memory_peak(name) or 0 for name in ready.types), default=0)
    cpus = AGENT_CPUS if spec.agent else COMMAND_CPUS
    return Need(ready.tasks, cpus, learned or spec.limits.memory or 0, ready.requires)
