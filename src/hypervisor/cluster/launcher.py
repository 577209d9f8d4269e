"""What every launcher does: start the supervisor of a host, and stop watching it.

A supervisor outlives its launcher. To end it, its host is drained in the ledger, whatever started
it; a launcher only has to stop starting it again.
"""

from __future__ import annotations

from typing import Protocol

from hypervisor.core.records import NamedTuple


class Launched(NamedTuple):
    """A host as its launcher knows it."""

    host: str  # how the launcher names it: a node's id, an ssh destination
    address: str
    supervisor: int | None  # its process id there, None if it is not running
    trouble: str = ""  # why it could not be started


class Launcher(Protocol):
    def hosts(self) -> tuple[str, ...]:
        """The hosts that it could start supervisors on."""
        ...

    def start(self, host: str) -> None:
        """Start the supervisor of a host, and keep it running where the launcher can do that."""
        ...

    def look(self, host: str) -> Launched | None:
        """How the supervisor of a host is; None if it was not started or nobody watches it."""
        ...

    def release(self, host: str) -> None:
        """Do not start it again. Whether it runs on is decided in the ledger."""
        ...
