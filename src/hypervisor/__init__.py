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

from hypervisor.domain.version import VERSION

if TYPE_CHECKING:
    from hypervisor.api import Hypervisor, open
    from hypervisor.domain.errors import HypervisorError, LeaseLost, RequestError, StoreError
    from hypervisor.domain.run import RunSpec
    from hypervisor.domain.task import Changes, NewTask
    from hypervisor.operations.claim import Done

__version__ = VERSION
__all__ = [
    "Changes", "Done", "Hypervisor", "HypervisorError", "LeaseLost", "NewTask", "RequestError",
    "RunSpec", "StoreError", "open",
]  # fmt: skip

_HOMES = {
    "hypervisor.api": ("Hypervisor", "open"),
    "hypervisor.domain.errors": ("HypervisorError", "LeaseLost", "RequestError", "StoreError"),
    "hypervisor.domain.run": ("RunSpec",),
    "hypervisor.domain.task": ("Changes", "NewTask"),
    "hypervisor.operations.claim": ("Done",),
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'hypervisor' has no attribute {name!r}")
