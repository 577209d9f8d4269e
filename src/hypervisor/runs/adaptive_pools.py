"""Pools under the strategy `adaptive`: the learner chooses the number of workers, within what the
governor allows. Every change is an event with the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypervisor.core.text import pluralize
from hypervisor.learning.record import Work, kind_of
from hypervisor.queue.sql import event_log

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypervisor.learning.learner import Learner
    from hypervisor.learning.policy import Choice
    from hypervisor.queue.context import Context
    from hypervisor.resources.allocation import Pool
    from hypervisor.runs.spec import RunSpec

ADAPTIVE = "adaptive"
PER_CORE = 4  # work that waits may have more workers than there are cores
CAP_MS = 10_000  # how long a limit set by the governor counts
ACTOR = "supervisor"


class AdaptivePools:
    def __init__(self, hv: Context, learner: Learner) -> None:
        self._hv, self._learner = hv, learner
        self._at: dict[Pool, int] = {}
        self._announced: dict[Pool, int] = {}
        self._cap = (0, -CAP_MS)  # how many, and when that was decided

    def is_adaptive(self, spec: RunSpec) -> bool:
        """The batch's strategy counts; if it is `auto`, the strategy in config.toml."""
        usual = spec.strategy == "auto" and self._hv.settings.strategy == ADAPTIVE
        return usual or spec.strategy == ADAPTIVE

    def most(
        self, now: int, pool: Pool, spec: RunSpec, types: Sequence[str], *, limit: int, first: int
    ) -> int:
        """How many workers the pool should have; `first` while nothing is known. If tasks have
        several types, the first one decides."""
        if not types or limit < 1:
            return limit
        is_capped = 0 <= now - self._cap[1] < CAP_MS and self._cap[0] < limit
        if is_capped:
            limit = max(self._cap[0], 1)
        kind = kind_of(types[0], Work(_program(spec), spec.skill), pool.agent)
        choice = self._learner.choice(kind, types[0], limit, first, self._at.get(pool, 0))
        self._at[pool] = choice.workers
        if choice.workers != self._announced.get(pool) and not (
            is_capped and choice.workers == limit
        ):
            self._announced[pool] = choice.workers  # a cap is reported by the governor
            self._announce(now, pool, kind, choice)
        return choice.workers

    def note(self, now: int, asked: int, target: int) -> None:
        """Remember a limit set by the governor: there is no point in exploring above it."""
        if target < asked:
            self._cap = (target, now)

    def _announce(self, now: int, pool: Pool, kind: str, choice: Choice) -> None:
        text = f"{pluralize(choice.workers, 'worker')} for {kind}: {choice.why}"
        data = {"type": kind, "workers": choice.workers, "settled": choice.settled, "message": text}
        self._hv.store.write_unsynced(event_log.note, "learner", data, ACTOR, now, batch=pool.batch)


def _program(spec: RunSpec) -> str:
    if spec.command:
        return " ".join(spec.command.argv)
    return spec.function.name if spec.function else ""
