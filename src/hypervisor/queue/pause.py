"""Pauses: tasks that cannot be claimed for now."""

from hypervisor.core.records import NamedTuple

ALL = "all"
BATCH = "batch"
TYPE = "type"
INTERRUPTED = "interrupted"  # the reason of a pause whose run was interrupted


class Pause(NamedTuple):
    """A pause of everything, a batch, or a type."""

    scope: str
    name: str
    reason: str
    actor: str
    at: int
