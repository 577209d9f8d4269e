"""Watches one attempt and reports, with evidence, when it nears or reaches a limit.

For each limit there is one warning, at 80 %, and one stop. It works on samples that are passed in;
the caller acts on its findings.
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
QUIET = "no output, no CPU use and no writes"
IDLE_CPU = 0.01  # of one core, used by polling loops and idle runtimes
CPU_TICK = 0.01  # seconds: CPU time is accounted in steps of this size
MAX_GAP = 5000  # after a longer time between samples, we were probably suspended
MAX_COUNTED = 2000  # of the time between samples, normally a second, for the time limit
EXACT_FOR = 3000
NOTABLE_GROWTH = 1.1


class Overseer:
    def __init__(self, limits: Limits, dry_run: bool = False, quiet: str = QUIET) -> None:
        """`quiet` describes a silence: what the attempt did not do."""
        self._limits, self._silence_text = limits, quiet
        self._dry_run = dry_run
        self._reported: set[tuple[LimitName, bool]] = set()
        self._last = self._ran = 0
        self._silence = SilenceTimer()
        self._exact = ExactMemory()

    def look(self, sample: Sample, exact_memory: Callable[[], int]) -> list[Finding]:
        """New findings from this sample; `exact_memory` is called before memory is judged."""
        self._ran += min(sample.at - self._last, MAX_COUNTED)
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
            # Forked processes share pages, which RSS counts for each of them.
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
        """There is no warning after a stop."""
        return (name, True) in self._reported or (name, reached) in self._reported

    def _act(self, reached: bool) -> Act:
        if not reached:
            return "warn"
        return "would_stop" if self._dry_run else "stop"


class SilenceTimer:
    """How long there has been no output, no CPU use and nothing written."""

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
            self._lasted += min(sample.at - last.at, MAX_GAP)
        return self._lasted


class ExactMemory:
    """Measures the exact memory only every few seconds, unless the tree has grown."""

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
    """Checked over one interval for bursts, over the whole silence for slow steady work."""
    seconds = (sample.at - earlier.at) / 1000
    return sample.cpu - earlier.cpu > IDLE_CPU * seconds + CPU_TICK
