"""Learning: how much each type of task gains from parallel workers, and the next choice."""

from __future__ import annotations

from collections.abc import Sequence

from hypervisor.learning.learn import Gain, learnings
from hypervisor.queue.context import Context
from hypervisor.web.dashboard.page import Page, Request, Values

HEIGHT, WIDTH = 120, 300


def learned(hv: Context, request: Request) -> Values:
    found = learnings(hv)
    return {"learned": found, "curves": [_curve(each.gains) for each in found]}


def _curve(gains: Sequence[Gain]) -> Values:
    """The points of a drawing: throughput by workers, with the interval."""
    if not gains:
        return {"points": (), "band": "", "line": "", "top": 1.0}
    top = max(1.0, *(gain.throughput.high for gain in gains))
    most = max(gain.workers for gain in gains)

    def at(workers: int, value: float) -> str:
        x = WIDTH * (workers - 1) / max(most - 1, 1)
        return f"{x:.1f},{HEIGHT * (1 - value / top):.1f}"

    high = [at(gain.workers, gain.throughput.high) for gain in gains]
    low = [at(gain.workers, gain.throughput.low) for gain in gains]
    return {
        "band": " ".join([*high, *reversed(low)]),
        "line": " ".join(at(gain.workers, gain.throughput.mean) for gain in gains),
        "top": top,
    }


PAGES = (Page("/learning", "learning", parts={"learned": learned}),)
