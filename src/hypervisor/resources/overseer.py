"""Watches one attempt and says when it nears or reaches a limit: on evidence only.

Each limit is warned of once, at 80 %, and stopped for once. It acts on samples
that are handed in; whoever asks carries out what it finds.
"""

from collections.abc import Callable, Iterator

from hypervisor.resources.limits import (
    Act,
    Finding,
    LimitName,
    Limits,
    Sample,
    size_text,
    span_text,
)

NEAR = 0.8
QUIET = "no output, no CPU and nothing written"
IDLE_CPU = 0.01  # of one core: what waiting loops and idle runtimes burn
CPU_TICK = 0.01  # seconds: CPU time is accounted in steps of this size
LONGEST_GAP = 5000  # more time between samples proves no silence: we were suspended, or all was
MOST_COUNTED = 2000  # of the time between samples, which come every second, for the time limit
EXACT_FOR = 3000
NOTABLE_GROWTH = 1.1


class Overseer:
    def __init__(self, limits: Limits, dry_run: bool = False, quiet: str = QUIET) -> None:
        """`quiet` says what was missing while nothing was seen of the attempt."""
        self._limits, self._silence_text = limits, quiet
        self._dry_run = dry_run
        self._reported: set[tuple[LimitName, bool]] = set()
        self._last = self._ran = 0
        self._silence = SilenceTimer()
        self._exact = ExactMemory()

    def look(self, sample: Sample, exact_memory: Callable[[], int]) -> list[Finding]:
        """What is new about this sample; `exact_memory` is asked before a verdict on memory."""
        self._ran += min(sample.at - self._last, MOST_COUNTED)
        self._last, ran, quiet = sample.at, self._ran, self._silence.after(sample)
        return [
            *self._check("time", self._limits.time, ran, lambda: f"ran for {span_text(ran)}"),
            *self._check_memory(sample, exact_memory),
            *self._check(
                "silence",
                self._limits.silence,
                quiet,
                lambda: f"{self._silence_text} for {span_text(quiet)}",
            ),
            *self._check(
                "output",
                self._limits.output,
                sample.output,
                lambda: f"{size_text(sample.output)} of output",
            ),
        ]

    def _check_memory(self, sample: Sample, ask: Callable[[], int]) -> Iterator[Finding]:
        limit = self._limits.memory
        if limit and sample.rss >= NEAR * limit and not self._is_reported("memory", True):
            # Processes that forked share pages, and RSS counts these once for each.
            used = min(sample.rss, self._exact.at(sample, ask))
            yield from self._check("memory", limit, used, lambda: f"{size_text(used)} used")

    def _check(
        self, name: LimitName, limit: int | None, amount: int, evidence: Callable[[], str]
    ) -> Iterator[Finding]:
        if not limit or amount < NEAR * limit:
            return
        reached = amount >= limit
        if self._is_reported(name, reached):
            return
        self._reported.add((name, reached))
        shown = span_text(limit) if name in ("time", "silence") else size_text(limit)
        yield Finding(name, self._act(reached), f"{evidence()}, limit {shown}")

    def _is_reported(self, name: LimitName, reached: bool) -> bool:
        """No warning comes after a stop."""
        return (name, True) in self._reported or (name, reached) in self._reported

    def _act(self, reached: bool) -> Act:
        if not reached:
            return "warn"
        return "would_stop" if self._dry_run else "stop"


class SilenceTimer:
    """For how long there was no output, no CPU used and nothing written."""

    def __init__(self) -> None:
        self._began: Sample | None = None
        self._last: Sample | None = None
        self._lasted = 0

    def after(self, sample: Sample) -> int:
        began, last = self._began, self._last
        self._last = sample
        if began is None or last is None or _is_active(began, last, sample):
            self._began, self._lasted = sample, 0
        else:
            self._lasted += min(sample.at - last.at, LONGEST_GAP)
        return self._lasted


class ExactMemory:
    """Asks for the exact memory only every few seconds, unless the tree has grown."""

    def __init__(self) -> None:
        self._asked: Sample | None = None
        self._exact = 0

    def at(self, sample: Sample, ask: Callable[[], int]) -> int:
        asked = self._asked
        if (
            asked is None
            or sample.at - asked.at >= EXACT_FOR
            or sample.rss > asked.rss * NOTABLE_GROWTH
        ):
            self._asked, self._exact = sample, ask()
        return self._exact


def _is_active(began: Sample, last: Sample, sample: Sample) -> bool:
    return (
        sample.output != last.output
        or sample.written != last.written
        or sample.cpu < last.cpu  # a part of the tree has ended
        or _uses_cpu(last, sample)
        or _uses_cpu(began, sample)
    )


def _uses_cpu(earlier: Sample, sample: Sample) -> bool:
    """Looked at over one interval for bursts, over the whole silence for steady little work."""
    seconds = (sample.at - earlier.at) / 1000
    return sample.cpu - earlier.cpu > IDLE_CPU * seconds + CPU_TICK
