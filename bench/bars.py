"""What Hypervisor's speed is held to, as ratios within one run."""

from __future__ import annotations

from collections.abc import Sequence
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
    measured: float
    ok: bool

    def cells(self) -> tuple[str, str, str, str]:
        return self.bar, f"≥ {self.wanted:.1f}×", f"{self.measured:.2f}×", verdict(self.ok)


def judge(
    bars: Sequence[Bar], summary: dict[str, dict[int, dict[str, Any]]], processes: int
) -> list[Judged]:
    """The bars whose systems were all measured."""
    judged = []
    for bar in bars:
        speeds = [
            _speed(summary[name], processes)
            for name in (bar.system, *bar.rivals)
            if processes in summary.get(name, {})
        ]
        if len(speeds) == 1 + len(bar.rivals) and min(speeds) > 0:
            measured = speeds[0] / max(speeds[1:])
            text = f"{bar.system} / {' or '.join(bar.rivals)}"
            judged.append(Judged(text, bar.wanted, measured, measured >= bar.wanted))
    return judged


def _speed(by_count: dict[int, dict[str, Any]], processes: int) -> float:
    """A disk's limit is the best any number of processes got out of it."""
    if by_count[processes]["put_per_second"] == 0:
        return max(float(entry["drain_per_second"]) for entry in by_count.values())
    return float(by_count[processes]["drain_per_second"])
