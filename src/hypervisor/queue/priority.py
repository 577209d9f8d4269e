"""Who goes first: one integer per task, smaller first, never recomputed.

A level is worth a fixed head start, so waiting makes up for a lower priority:
a low task outranks a medium one that was added a week later, and nothing
starves for ever.
"""

from __future__ import annotations

from hypervisor.core.errors import InvalidInput
from hypervisor.core.ids import ENTROPY_BITS

PRIORITIES = ("critical", "high", "medium", "low")
DEFAULT = "medium"
_WEEK = 7 * 24 * 3600 * 1000
HEAD_START = {"critical": 0, "high": 4 * _WEEK, "medium": 5 * _WEEK, "low": 6 * _WEEK}


def check_priority(text: object) -> str:
    if not isinstance(text, str) or text not in HEAD_START:
        given = str(text)[:60]
        raise InvalidInput(f"priority {given!r} is unknown: use one of {', '.join(PRIORITIES)}.")
    return text


def rank(number: int, priority: str) -> int:
    """The claim order of the task whose id encodes `number`."""
    return number + (HEAD_START[priority] << ENTROPY_BITS)
