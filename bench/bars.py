"""What Hypervisor's speed is held to, as ratios within one run."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

from bench.support import verdict


class Bar(NamedTuple):
    system: str
    rivals: tuple[str, ...]  # the fastest of them counts
    wanted: float


BARS = (
    Bar("Hypervisor durable k=1", ("Huey FULL",), 1.0),
    Bar("Hypervisor durable k=1", ("litequeue FULL",), 2.0),
    Bar("Hypervisor durable k=1", ("bare FULL commit",), 0.6),
    Bar("Hypervisor relaxed k=1", ("Huey OFF",), 2.0),  # Huey's own relaxed setting
    Bar("Hypervisor relaxed k=1", ("Huey FULL",), 2.0),  # Huey as it comes
    Bar("Hypervisor durable k=50", ("Huey FULL",), 4.0),
    Bar("Hypervisor PostgreSQL k=1", ("Procrastinate",), 5.0),
    Bar("Hypervisor PostgreSQL k=10", ("PgQueuer k=10",), 1.0),
)


class Judged(NamedTuple):
    bar: str
    wanted: float
    measured: float | None  # None: a system failed in a round
    ok: bool

    def cells(self) -> tuple[str, str, str, str]:
        measured = "failed" if self.measured is None else f"{self.measured:.2f}×"
        return self.bar, f"≥ {self.wanted:.1f}×", measured, verdict(self.ok)


COMMIT, SYNC = LIMITS = "bare FULL commit", "bare fdatasync"
Summary = dict[str, dict[int, dict[str, Any]]]


def judge(bars: Sequence[Bar], summary: Summary, processes: int) -> list[Judged]:
    """The bars whose systems all took part; one that failed in a round misses it."""
    judged = []
    for bar in bars:
        if all(name in summary for name in (bar.system, *bar.rivals)):
            measured = ratio(summary, bar.system, bar.rivals, processes)
            text = f"{bar.system} / {' or '.join(bar.rivals)}"
            judged.append(Judged(text, bar.wanted, measured, (measured or 0) >= bar.wanted))
    return judged


def ratio(summary: Summary, name: str, rivals: Sequence[str], processes: int) -> float | None:
    """How many times as fast as the fastest rival, by the median of the rounds' own ratios;
    None if not all were measured in all rounds."""
    found = [summary.get(each, {}) for each in (name, *rivals)]
    if any(processes not in by_count for by_count in found):
        return None
    own, *others = [
        _speeds(by_count, processes, each in LIMITS)
        for each, by_count in zip((name, *rivals), found, strict=True)
    ]
    if any(len(each) != len(own) or not all(each) for each in (own, *others)):
        return None
    return median(mine / max(theirs) for mine, *theirs in zip(own, *others, strict=True))


def _speeds(by_count: dict[int, dict[str, Any]], processes: int, is_limit: bool) -> list[float]:
    """Round by round. A disk's limit is the best any number of processes got out of it."""
    here: list[float] = by_count[processes]["each"]
    if is_limit:
        best = max(float(entry["drain_per_second"]) for entry in by_count.values())
        return [best] * len(here)
    return here
