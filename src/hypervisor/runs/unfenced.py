"""The interface of a worker's fence, for workers that need none: their claims have own leases."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hypervisor.queue.lease import Lease
    from hypervisor.queue.stop import Stop


class Unfenced:
    leased_by = ""  # the host whose lease keeps the claims of the worker

    def start(self) -> None:
        """Begin to watch the lease of the host."""

    def may_claim(self) -> bool:
        """Whether a claim could be kept for long enough to be worth it."""
        return True

    def renewed_since(self) -> bool:
        """Whether the host has a new lease, and claims of the former one are lost; noted."""
        return False

    def enter(self, lease: Lease) -> None:
        """Called right before an attempt starts. StoppedEarly: it must not."""

    def enter_session(self) -> bool:
        """The same for an agent that claims tasks itself. False: it must not start."""
        return True

    def cut(self) -> Stop | None:
        """Why the attempt must end, or was ended; None if it may continue."""
        return None

    def leave(self) -> Stop | None:
        """The attempt has ended, with all its processes; returns what `cut` does."""
        return None

    def stops(self) -> str:
        """Changes when a stop is requested for any attempt. "": unknown, look in the store."""
        return ""
