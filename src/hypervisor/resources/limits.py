"""Limits of an attempt, samples of it, and amounts as text."""

from typing import Literal

from hypervisor.core.records import NamedTuple

UNITS = ("bytes", "KB", "MB", "GB", "TB")
LimitName = Literal["time", "memory", "silence", "output"]
Act = Literal["warn", "stop", "would_stop"]


class Limits(NamedTuple):
    """Milliseconds and bytes. None: not set; 0: no limit."""

    time: int | None = None
    memory: int | None = None
    silence: int | None = None
    output: int | None = None


class Sample(NamedTuple):
    """An attempt's process tree `at` milliseconds after its start."""

    at: int
    cpu: float
    rss: int
    written: int
    output: int


class Finding(NamedTuple):
    """A limit that is near or reached, and what to do; a dry run stops nothing."""

    limit: LimitName
    act: Act
    evidence: str


def merged(*limits: Limits) -> Limits:
    """For each limit, the first that is set: task, then batch, type and defaults."""
    return Limits(
        *(next((v for v in values if v is not None), None) for values in zip(*limits, strict=True))
    )


def size_text(size: int) -> str:
    """`412 MB`, `1.04 GB`; a KB is 1024 bytes."""
    amount, unit = float(size), 0
    while abs(amount) >= 999.5 and unit < len(UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{amount:.0f} {UNITS[unit]}" if abs(amount) >= 999.5 else f"{amount:.3g} {UNITS[unit]}"


def span_text(ms: int) -> str:
    """`0.5 s`, `61 s`, `10 min 5 s`, `2 h 30 min`."""
    seconds = ms // 1000
    if seconds < 600:
        return f"{ms / 1000:.3g} s" if ms < 10_000 else f"{seconds} s"
    large, small, size = ("min", "s", 60) if seconds < 7200 else ("h", "min", 3600)
    rest = seconds % size if size == 60 else seconds % size // 60
    return f"{seconds // size} {large}" + (f" {rest} {small}" if rest else "")
