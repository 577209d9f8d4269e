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

if TYPE_CHECKING:
    from hypervisor.api import Hypervisor, open
    from hypervisor.async_api import AsyncHypervisor, AsyncRun, open_async
    from hypervisor.batches.run_handle import ItemResult, Run
    from hypervisor.core.errors import (
        AgentError,
        AgentNotReady,
        AmbiguousId,
        BatchConflict,
        BatchPaused,
        ClusterError,
        DependencyCycle,
        GitFailed,
        GitUnusable,
        HypervisorError,
        InvalidInput,
        LeaseLost,
        NotCollected,
        NotFound,
        RequestError,
        SandboxUnavailable,
        SchemaMismatch,
        StoreBroken,
        StoreError,
        StoreFull,
        StoreGone,
        StoreNewer,
        StoreReadOnly,
        StoreUnavailable,
        SupervisorFailed,
        TaskFailed,
        WorkspaceError,
        WrongState,
    )
    from hypervisor.queue.claim import Done
    from hypervisor.queue.task import Changes, NewTask, Outcome, State
    from hypervisor.resources.limits import Limits
    from hypervisor.runs.spec import AgentSpec, CommandSpec, FunctionSpec, RunSpec

__version__ = "0.1.0"
__all__ = [
    "AgentError",
    "AgentNotReady",
    "AgentSpec",
    "AmbiguousId",
    "AsyncHypervisor",
    "AsyncRun",
    "BatchConflict",
    "BatchPaused",
    "Changes",
    "ClusterError",
    "CommandSpec",
    "DependencyCycle",
    "Done",
    "FunctionSpec",
    "GitFailed",
    "GitUnusable",
    "Hypervisor",
    "HypervisorError",
    "InvalidInput",
    "ItemResult",
    "LeaseLost",
    "Limits",
    "NewTask",
    "NotCollected",
    "NotFound",
    "Outcome",
    "RequestError",
    "Run",
    "RunSpec",
    "SandboxUnavailable",
    "SchemaMismatch",
    "State",
    "StoreBroken",
    "StoreError",
    "StoreFull",
    "StoreGone",
    "StoreNewer",
    "StoreReadOnly",
    "StoreUnavailable",
    "SupervisorFailed",
    "TaskFailed",
    "WorkspaceError",
    "WrongState",
    "open",
    "open_async",
]

_HOMES = {
    "hypervisor.api": ("Hypervisor", "open"),
    "hypervisor.async_api": ("AsyncHypervisor", "AsyncRun", "open_async"),
    "hypervisor.batches.run_handle": ("ItemResult", "Run"),
    "hypervisor.core.errors": (
        "AgentError",
        "AgentNotReady",
        "AmbiguousId",
        "BatchConflict",
        "BatchPaused",
        "ClusterError",
        "DependencyCycle",
        "GitFailed",
        "GitUnusable",
        "HypervisorError",
        "InvalidInput",
        "LeaseLost",
        "NotCollected",
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
        "SandboxUnavailable",
        "SupervisorFailed",
        "TaskFailed",
        "WorkspaceError",
        "WrongState",
    ),
    "hypervisor.resources.limits": ("Limits",),
    "hypervisor.runs.spec": ("AgentSpec", "CommandSpec", "FunctionSpec", "RunSpec"),
    "hypervisor.queue.task": ("Changes", "NewTask", "Outcome", "State"),
    "hypervisor.queue.claim": ("Done",),
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'hypervisor' has no attribute {name!r}")
