"""Numbers, times and printed lines as a report shows them."""

from __future__ import annotations

import time
from collections.abc import Mapping

from hypervisor.core.escape_sequences import SEQUENCE
from hypervisor.queue.lifecycle import state_name

STATES = (
    "done",
    "failed",
    "blocked",
    "review",
    "cancelled",
    "in_progress",
    "merging",
    "active",
    "waiting",
    "inbox",
)


def number(value: int) -> str:
    return f"{value:,}"


def words(name: str) -> str:
    """The name of a state, for people."""
    return state_name(name)


def by_state(counts: Mapping[str, int]) -> dict[str, int]:
    """The states that occur, in a fixed order."""
    return {name: counts[name] for name in STATES if counts.get(name)}


def printed(line: str) -> str:
    """A line that a program printed, without its colors."""
    return SEQUENCE.sub("", line).replace("\t", "    ")


def took(ms: float) -> str:
    """`8 ms`, `0.46 s`, `12.3 s`, `4 min 10 s`, `2 h 5 min`."""
    if ms < 100:
        return f"{ms:.0f} ms"
    seconds = ms / 1000
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes} min" if minutes else f"{hours:,} h"


def step(ms: int) -> str:
    """The edge of a range of durations, as short as possible."""
    if ms < 1000:
        return f"{ms} ms"
    seconds = ms / 1000
    if seconds < 120:
        return f"{seconds:g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"


def moment(ms: int) -> str:
    return f"{day(ms)} {clock(ms)}" if ms else ""


def clock(ms: int) -> str:
    return time.strftime("%H:%M:%S", time.localtime(ms / 1000))


def minute(ms: int) -> str:
    return clock(ms)[:5]


def milliseconds(ms: int) -> str:
    return f"{clock(ms)}.{ms % 1000:03}"


def day(ms: int) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(ms / 1000))
