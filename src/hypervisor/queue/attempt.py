"""How an attempt at a command or function ended."""

from __future__ import annotations

from hypervisor.core.records import NamedTuple
from hypervisor.queue.task import Json


class Ended(NamedTuple):
    """CPU time is in seconds, peak memory in bytes; a function has a result or an error."""

    exit_code: int | None
    signal: int | None
    cpu: float
    peak: int
    result: Json = None
    error: str | None = None

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and self.error is None

    def reason(self) -> str | None:
        """Why it failed, in one sentence; None if it succeeded."""
        if self.ok:
            return None
        if self.error is not None:
            return self.error
        if self.signal is not None:
            return f"killed by {signal_name(self.signal)}"
        return "exit code unknown" if self.exit_code is None else f"exit code {self.exit_code}"


def signal_name(number: int) -> str:
    from signal import Signals

    try:
        return Signals(number).name
    except ValueError:
        return f"signal {number}"
