"""How notices leave the program."""

from __future__ import annotations

from typing import Protocol

from hypervisor.notifications.notice import Notice, Rule


class Courier(Protocol):
    """Takes notices to their receivers, and keeps addresses where only their owner can read."""

    def keep(self, rule: str, address: str) -> None: ...
    def forget(self, rule: str) -> None: ...
    def can_reach(self, rule: Rule) -> bool:
        """Whether this host knows how: an address is kept on the host where it was given."""
        ...

    def deliver(self, rule: Rule, notice: Notice, show_output: bool = False) -> str | None:
        """Why it did not arrive, without any secret; None if it did. With
        `show_output`, a command may print to the terminal."""
        ...
