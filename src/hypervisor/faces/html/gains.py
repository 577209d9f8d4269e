"""The part of a report that draws what parallelism is worth: throughput against workers, with
the band in which the truth is with 90 %."""

from __future__ import annotations

from collections.abc import Sequence

from hypervisor.faces.html.text import say
from hypervisor.operations.learn import Gain, Learned
from hypervisor.operations.wording import counted

WIDTH, HIGH = 1000.0, 200.0


def gains(learned: Sequence[Learned]) -> str:
    return "".join(_one(each) for each in learned if each.samples)


def _one(each: Learned) -> str:
    shown = each.next.best if each.next.best in {gain.workers for gain in each.gains} else 0
    top = 1.08 * max(max(gain.throughput.high for gain in each.gains), 1.0)
    samples = counted(each.samples, "sample")
    saved = each.parallel_benefit
    said = (
        f"Next time {counted(each.next.workers, 'worker')}: {each.next.why}. "
        f"Parallel benefit {saved.mean:.2f} ({saved.low:.2f} to {saved.high:.2f})."
    )
    return (
        f"<h3>{say(each.name)} · {samples}</h3>"
        f'<div class="gain"><div class="y"><span>{top / 1.08:.1f} ×</span><span>0</span></div>'
        f"{_drawn(each.gains, top, shown)}{_labels(each.gains, shown)}</div>"
        f'<p class="note">{say(said)}</p>'
    )


def _drawn(found: Sequence[Gain], top: float, shown: int) -> str:
    def points(values: Sequence[float]) -> list[str]:
        return [f"{_x(n, found):.1f},{HIGH * (1 - value / top):.1f}"
                for n, value in enumerate(values)]  # fmt: skip

    low = points([gain.throughput.low for gain in found])
    high = points([gain.throughput.high for gain in found])
    mean = points([gain.throughput.mean for gain in found])
    ideal = points([float(gain.workers) for gain in found])
    at = [n for n, gain in enumerate(found) if gain.workers == shown]
    mark = "".join(
        f'<line class="next" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{HIGH:.0f}"/>'
        for x in (_x(n, found) for n in at)
    )
    titles = "; ".join(
        f"{gain.workers}: {gain.throughput.mean:.1f} × "
        f"({gain.throughput.low:.1f} to {gain.throughput.high:.1f})"
        for gain in found
    )
    return (
        f'<svg viewBox="0 0 {WIDTH:.0f} {HIGH:.0f}" preserveAspectRatio="none" role="img">'
        f"<title>{titles}</title>"
        f'<polyline class="ideal" fill="none" points="{" ".join(ideal)}"/>{mark}'
        f'<polygon class="band" points="{" ".join([*high, *reversed(low)])}"/>'
        f'<polyline class="mean" points="{" ".join(mean)}"/></svg>'
    )


def _labels(found: Sequence[Gain], shown: int) -> str:
    words = (
        f"<b>{gain.workers}</b>" if gain.workers == shown else str(gain.workers) for gain in found
    )
    parts = "".join(f"<span>{word}</span>" for word in words)
    return f'<div class="x">{parts}</div><div class="x"><span>workers</span></div>'


def _x(n: int, found: Sequence[Gain]) -> float:
    """The middle of its column, as wide as those of the labels."""
    return WIDTH * (n + 0.5) / len(found)
