"""Stops: running attempts that must end."""

from typing import Literal

from hypervisor.core.records import NamedTuple

# What happens to the task of a stopped attempt. People choose among the first three. "lost": the
# claim has ended; "limit": a failure, which may be retried; "classify": the agent's end decides.
StopAction = Literal["cancel", "fail", "release", "lost", "limit", "classify"]


class Stop(NamedTuple):
    """A running attempt that must end, and what happens to its task."""

    task: str
    attempt: int
    next: StopAction
    reason: str
    actor: str
