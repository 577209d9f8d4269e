"""What the core needs of the store, as Protocols."""

from hypervisor.ports.store import Store

__all__ = ["Store"]
