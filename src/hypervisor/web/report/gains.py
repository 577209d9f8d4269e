"""Throughput against workers, as a curve with its 90 % band."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hypervisor.core.records import NamedTuple
from hypervisor.learning.learn import Gain, Learned

WIDTH, HEIGHT = 1000.0, 200.0


class Curve(NamedTuple):
    """`ideal`, `band` and `mean` are points as SVG writes them."""

    learned: Learned
    top: float
    ideal: str
    band: str
    mean: str
    best: float | None  # where the best number of workers is marked


def curves(learned: Sequence[Learned]) -> Iterator[Curve]:
    for kind in learned:
        if kind.samples:
            yield _curve(kind)


def _curve(learned: Learned) -> Curve:
    gains = learned.gains
    top = max(max(gain.throughput.high for gain in gains), 1.0)

    def points(values: Sequence[float]) -> list[str]:
        return [
            f"{_x(n, gains):.1f},{HEIGHT * (1 - value / (1.08 * top)):.1f}"
            for n, value in enumerate(values)
        ]

    low = points([gain.throughput.low for gain in gains])
    high = points([gain.throughput.high for gain in gains])
    best = [_x(n, gains) for n, gain in enumerate(gains) if gain.workers == learned.next.best]
    return Curve(
        learned,
        top,
        ideal=" ".join(points([float(gain.workers) for gain in gains])),
        band=" ".join([*high, *reversed(low)]),
        mean=" ".join(points([gain.throughput.mean for gain in gains])),
        best=round(best[0], 1) if best else None,
    )


def _x(n: int, gains: Sequence[Gain]) -> float:
    """The middle of a column as wide as those of the labels."""
    return WIDTH * (n + 0.5) / len(gains)
