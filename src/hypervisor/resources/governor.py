"""Decides how many workers this host can run, and says why in one sentence.

Zones slow down all workers, admission by fit keeps planned memory below the
ceiling, and an emergency stops attempts: the lowest priority first, the
youngest of those, one at a time so that its memory is freed before the next
one is stopped. The last attempt is stopped only if it alone is the problem:
without it, memory would be out of danger, or, if memory stalls, it uses more
than the rest of the host.
"""

from collections.abc import Collection, Sequence
from math import exp
from typing import Literal, Protocol

from hypervisor.core.records import NamedTuple
from hypervisor.queue.lane import PRIORITIES
from hypervisor.resources import admission, zones
from hypervisor.resources.admission import Footprint, Trial
from hypervisor.resources.limits import size_text
from hypervisor.resources.zones import DANGER, EMERGENCY, SAFE, Load, Thresholds, Zone, ZoneState

SMOOTHING_MS = 15_000  # of CPU: a compiler that is busy for a few seconds does not count as load
PAUSE_MS = 1000
STALL_PAUSE_MS = 10_000  # stalls are averaged over ten seconds, so relief shows only after that
REPEAT_MS = 60_000
UNSEEN_MS = 2000  # the footprint of a newer attempt may not show all its memory yet

Cause = Literal["zone", "fit", "trial", "strategy"]  # why fewer workers run than asked for


class LoadProbe(Protocol):
    def read(self, workers: Collection[int]) -> Load:
        """The load of this host since the last call; the part of these pids is our own."""
        ...


class Reading(NamedTuple):
    """The zone, since when, and the load with its CPU smoothed."""

    zone: Zone
    since: int
    load: Load


class RunningAttempt(NamedTuple):
    """A live worker and its attempt; between two attempts its footprint is 0 bytes."""

    worker: str
    priority: str
    started_at: int
    footprint: Footprint


class Decision(NamedTuple):
    """How many workers may run, which to stop now, and why; `news` if that is worth an event.

    `alone` means that the stopped attempt alone is too big for this host: a retry would
    fail the same way.
    """

    target: int
    stop: tuple[str, ...]
    sentence: str
    news: bool
    alone: bool = False


class Governor:
    def __init__(
        self, probe: LoadProbe, thresholds: Thresholds = zones.DEFAULTS, strategy: str = "auto"
    ) -> None:
        self.thresholds = thresholds
        self.strategy = strategy
        self.reading = Reading(SAFE, 0, Load(0.0, 0.0, 0, 0))
        self.latest = self.reading.load  # not smoothed
        self._probe = probe
        self._zone_state: ZoneState | None = None
        self._read_at = 0
        self._trial: Trial | None = None
        self._stops = StopPicker()
        self._news = NewsFilter()

    def tick(
        self,
        now: int,
        workers: Collection[int],
        running: Sequence[RunningAttempt] = (),
    ) -> Reading:
        """Measure the load of the host."""
        self.latest = self._probe.read(workers)
        load = self._smoothed(now, self.latest)
        if self.strategy == "auto":
            load = load._replace(planned=sum(_planned(attempt, now) for attempt in running))
        before = self._zone_state or ZoneState(SAFE, now)
        self._zone_state = zones.next_zone(before, load, self.thresholds, now)
        self.reading = Reading(self._zone_state.zone, self._zone_state.since, load)
        return self.reading

    def decide(
        self,
        now: int,
        asked: int,
        limit: int,
        running: Sequence[RunningAttempt],
        expected: int | None = None,
    ) -> Decision:
        """How many of the workers asked for may run; `expected` is the peak of the next one.

        `running` has an entry for every live worker, including those that drain.
        """
        footprints = [attempt.footprint for attempt in running]
        self._watch(now, asked, footprints, expected)
        stop, alone = self._stops.next(now, running, self.reading.load, self.thresholds)
        target, cause = self._target(now, min(asked, limit), limit, footprints, expected)
        if stop:
            sentence = self._stop_sentence(stop, alone)
        else:
            sentence = self._sentence(
                now, target, asked, cause, running=footprints, expected=expected
            )
        zone = self.reading.zone
        news = self._news.is_news(now, zone, limit, cause if target < asked else None)
        news = bool(stop) or (news and asked > 0)
        return Decision(target, (stop.worker,) if stop else (), sentence, news, alone)

    def _smoothed(self, now: int, load: Load) -> Load:
        """The CPU we used to get started is left out: it says nothing about the load to come."""
        if self._zone_state is None:
            cpu, own = load.foreign_cpu, 0.0
        else:
            weight = 1 - exp(-max(0, now - self._read_at) / SMOOTHING_MS)
            last = self.reading.load
            cpu = last.cpu + weight * (load.cpu - last.cpu)
            own = last.own + weight * (load.own - last.own)
        self._read_at = now
        return load._replace(cpu=cpu, own=own)

    def _watch(
        self, now: int, asked: int, footprints: Sequence[Footprint], expected: int | None
    ) -> None:
        unknown = [current for peak, current in footprints if peak is None]
        if unknown:
            self._trial = admission.observe_trial(self._trial, unknown, now)
        elif expected is not None or not asked:
            self._trial = None

    def _target(
        self, now: int, wanted: int, limit: int, running: Sequence[Footprint], expected: int | None
    ) -> tuple[int, Cause]:
        """How many workers may run, and why no more."""
        zone = self.reading.zone
        if zone == EMERGENCY:
            return min(wanted, 1, len(running)), "zone"
        if self.strategy == "sequential":
            return min(wanted, 1), "strategy"
        if self.strategy == "parallel":
            return min(wanted, zones.allowed(zone, limit) if zone == DANGER else limit), "zone"
        most = min(wanted, zones.allowed(zone, limit))
        fits = self._most_that_fit(now, most, running, expected)
        if fits < most:
            return fits, "trial" if self._holds_trial(now, expected) else "fit"
        return most, "zone"

    def _most_that_fit(
        self, now: int, most: int, running: Sequence[Footprint], expected: int | None
    ) -> int:
        load, ceiling, count = self.reading.load, self.thresholds.ceiling, len(running)
        guess = admission.guess_from(self._trial, now)
        if most > count:
            more = admission.starts_that_fit(
                load, running, expected, most - count, ceiling=ceiling, guess=guess
            )
            if more:
                return count + more
        if expected is None:
            return count
        return count - admission.workers_to_drain(load, running, expected, ceiling)

    def _holds_trial(self, now: int, expected: int | None) -> bool:
        return expected is None and admission.guess_from(self._trial, now).most is not None

    def _sentence(
        self,
        now: int,
        target: int,
        asked: int,
        cause: Cause,
        *,
        running: Sequence[Footprint],
        expected: int | None,
    ) -> str:
        if not asked:
            return f"nothing to start: {self._measures(every=True)}"
        if target >= asked:
            return f"{target} of {asked} may run: {self._measures(every=True)}"
        zone = self.reading.zone
        if cause == "zone" and (zone == EMERGENCY or (zone == DANGER and running)):
            return f"starting nothing new: {self._measures()}"
        return f"{target} of {asked} started: {self._why(now, cause, running, expected)}"

    def _why(
        self, now: int, cause: Cause, running: Sequence[Footprint], expected: int | None
    ) -> str:
        if cause == "strategy":
            return "--strategy sequential runs one at a time"
        if cause == "trial":
            return "memory use per attempt is not known yet"
        if cause == "zone":
            return self._measures() if self.reading.zone != SAFE else "that is the limit"
        guess = admission.guess_from(self._trial, now)
        need = guess.next if expected is None else admission.likely_need(expected, running)
        free = admission.free(
            self.reading.load,
            admission.with_assumed_need(running, guess.running),
            self.thresholds.ceiling,
        )
        amount = f"{size_text(free)} free" if free > 0 else "no memory free"
        return f"{amount}, each attempt is expected to need {size_text(need)}"

    def _stop_sentence(self, stopped: RunningAttempt, alone: bool) -> str:
        if not alone:
            return f"stopped 1 of {stopped.priority} priority: {self._measures()}"
        used = size_text(stopped.footprint.current)
        limit = size_text(self.reading.load.memory_limit)
        return f"stopped the only attempt, which uses {used} of {limit}: {self._measures()}"

    def _measures(self, every: bool = False) -> str:
        """The figures that put the host into its zone, or all figures."""
        load, zone = self.reading.load, self.reading.zone
        by_others = "" if every else " busy with other work"
        texts = {
            f"CPU {_percent(load.foreign_cpu)}{by_others}": load._replace(
                memory_used=0, stall=None
            ),
            f"RAM {_percent(load.ram)}": load._replace(cpu=0.0, stall=None),
        }
        if load.stall:
            texts[f"stalled on memory {load.stall:.0f} %"] = load._replace(cpu=0.0, memory_used=0)
        shown = list(texts)
        for margin in (self.thresholds.margin, 0.0):
            matching = [
                text
                for text, part in texts.items()
                if zones.zone_for(part, self.thresholds, margin) == zone
            ]
            shown = matching if matching and not every else shown
        return f"{', '.join(shown)} ({zone})"


class StopPicker:
    """Picks the attempts that an emergency stops, one at a time."""

    def __init__(self) -> None:
        self._at: int | None = None
        self._stopping: set[tuple[str, int]] = set()

    def next(
        self, now: int, running: Sequence[RunningAttempt], load: Load, thresholds: Thresholds
    ) -> tuple[RunningAttempt | None, bool]:
        """The attempt to stop now, if any, and whether it alone causes the emergency."""
        self._stopping &= {_key(attempt) for attempt in running}
        candidates = [attempt for attempt in running if _key(attempt) not in self._stopping]
        over = load.ram > thresholds.ram_emergency
        stalls = load.stall is not None and load.stall > thresholds.stall
        if not candidates or not (over or stalls) or self._is_pausing(now, over):
            return None, False
        chosen = max(candidates, key=_stop_order)
        if len(candidates) == 1:
            alone = len(running) == 1 and _frees_enough(chosen, over, load, thresholds)
            if not alone:
                return None, False
        self._at = now
        self._stopping.add(_key(chosen))
        return chosen, len(candidates) == 1

    def _is_pausing(self, now: int, over: bool) -> bool:
        return self._at is not None and now - self._at < (PAUSE_MS if over else STALL_PAUSE_MS)


class NewsFilter:
    """Remembers what was logged, so that only changes are logged again."""

    def __init__(self) -> None:
        self._zone: tuple[Zone, int] = (SAFE, 0)
        self._at: dict[Cause, int] = {}

    def is_news(self, now: int, zone: Zone, limit: int, cause: Cause | None) -> bool:
        """Whether to log; `cause` is why fewer workers run than asked for, if so."""
        if self._zone[0] != SAFE and zone == SAFE:
            self._zone = (SAFE, 0)
            return True
        if cause in ("fit", "trial"):
            return self._is_due(now, cause)
        state = (zone, limit)
        if cause != "zone" or zone == SAFE or state == self._zone:
            return False
        self._zone = state
        return True

    def _is_due(self, now: int, cause: Cause) -> bool:
        """How many fit changes with every attempt that ends, so it is logged at intervals."""
        if cause in self._at and now - self._at[cause] < REPEAT_MS:
            return False
        self._at[cause] = now
        return True


def _key(attempt: RunningAttempt) -> tuple[str, int]:
    return attempt.worker, attempt.started_at


def _planned(attempt: RunningAttempt, now: int) -> int:
    """The part of its expected memory that an attempt uses."""
    expected, current = attempt.footprint
    if expected is None:
        return 0
    return expected if now - attempt.started_at < UNSEEN_MS else min(current, expected)


def _stop_order(attempt: RunningAttempt) -> tuple[int, int]:
    return PRIORITIES.index(attempt.priority), attempt.started_at


def _frees_enough(attempt: RunningAttempt, over: bool, load: Load, thresholds: Thresholds) -> bool:
    rest = load.memory_used - attempt.footprint.current
    if over:
        return rest <= thresholds.ram_danger * load.memory_limit
    return attempt.footprint.current > rest


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
