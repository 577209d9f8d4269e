"""Hypervisor: one durable queue for agents, commands and functions.

    import hypervisor

    with hypervisor.open() as hv:
        hv.add([hypervisor.NewTask("Review the parser")])
        for lease in hv.claim("reviewer"):
            hv.complete(lease.token, result={"verdict": "fine"})

Every method of `Hypervisor` is an operation, the same that the command line
and MCP use. Names are imported when they are first used: the command line
starts without them.
"""

from typing import TYPE_CHECKING, Any

from hypervisor.core.version import VERSION

if TYPE_CHECKING:
    from hypervisor.api import Hypervisor, open
    from hypervisor.core.errors import (
        AgentError,
        AgentNotReady,
        AmbiguousId,
        DependencyCycle,
        HypervisorError,
        InvalidInput,
        LeaseLost,
        NotFound,
        RequestError,
        SchemaMismatch,
        StoreBroken,
        StoreError,
        StoreFull,
        StoreGone,
        StoreNewer,
        StoreReadOnly,
        StoreUnavailable,
        WrongState,
    )
    from hypervisor.queue.claim import Done
    from hypervisor.queue.task import Changes, NewTask
    from hypervisor.runs.spec import RunSpec

__version__ = VERSION
__all__ = [
    "AgentError",
    "AgentNotReady",
    "AmbiguousId",
    "Changes",
    "DependencyCycle",
    "Done",
    "Hypervisor",
    "HypervisorError",
    "InvalidInput",
    "LeaseLost",
    "NewTask",
    "NotFound",
    "RequestError",
    "RunSpec",
    "SchemaMismatch",
    "StoreBroken",
    "StoreError",
    "StoreFull",
    "StoreGone",
    "StoreNewer",
    "StoreReadOnly",
    "StoreUnavailable",
    "WrongState",
    "open",
]

_HOMES = {
    "hypervisor.api": ("Hypervisor", "open"),
    "hypervisor.core.errors": (
        "AgentError",
        "AgentNotReady",
        "AmbiguousId",
        "DependencyCycle",
        "HypervisorError",
        "InvalidInput",
        "LeaseLost",
        "NotFound",
        "RequestError",
        "SchemaMismatch",
        "StoreBroken",
        "StoreError",
        "StoreFull",
        "StoreGone",
        "StoreNewer",
        "StoreReadOnly",
        "StoreUnavailable",
        "WrongState",
    ),
    "hypervisor.runs.spec": ("RunSpec",),
    "hypervisor.queue.task": ("Changes", "NewTask"),
    "hypervisor.queue.claim": ("Done",),
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'hypervisor' has no attribute {name!r}")
