"""Pools under the strategy `adaptive`: as many workers as the learner thinks best, within what
the governor allows. Each change is announced once, with the reason."""

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
    from hypervisor.queue.pool import Pool
    from hypervisor.runs.spec import RunSpec

ADAPTIVE = "adaptive"
PER_CORE = 4  # work that waits may have more workers than there are cores
CAP_MS = 10_000  # how long what the governor allowed is kept in mind
ACTOR = "supervisor"


class AdaptivePools:
    def __init__(self, hv: Context, learner: Learner) -> None:
        self._hv, self._learner = hv, learner
        self._at: dict[Pool, int] = {}
        self._announced: dict[Pool, int] = {}
        self._cap = (0, -CAP_MS)  # how many, and when that was said

    def is_adaptive(self, spec: RunSpec) -> bool:
        """Asked for by the batch, or by the settings where the batch asks for nothing."""
        usual = spec.strategy == "auto" and self._hv.settings.strategy == ADAPTIVE
        return usual or spec.strategy == ADAPTIVE

    def most(
        self, now: int, pool: Pool, spec: RunSpec, types: Sequence[str], *, limit: int, first: int
    ) -> int:
        """How many workers the pool shall have; `first` while nothing is known. Where types are
        mixed, the one that comes first decides."""
        if not types or limit < 1:
            return limit
        is_capped = 0 <= now - self._cap[1] < CAP_MS and self._cap[0] < limit
        if is_capped:
            limit = max(self._cap[0], 1)
        work = Work(" ".join(spec.command) or spec.function or "", spec.skill)
        kind = kind_of(types[0], work, pool.agent)
        choice = self._learner.choice(kind, types[0], limit, first, self._at.get(pool, 0))
        self._at[pool] = choice.workers
        if choice.workers != self._announced.get(pool) and not (
            is_capped and choice.workers == limit
        ):
            self._announced[pool] = choice.workers  # a cap is told by the governor
            self._announce(now, pool, kind, choice)
        return choice.workers

    def note(self, now: int, asked: int, target: int) -> None:
        """What the governor allowed: to try more than that would teach nothing."""
        if target < asked:
            self._cap = (target, now)

    def _announce(self, now: int, pool: Pool, kind: str, choice: Choice) -> None:
        text = f"{pluralize(choice.workers, 'worker')} for {kind}: {choice.why}"
        data = {"type": kind, "workers": choice.workers, "settled": choice.settled, "said": text}
        self._hv.store.write_unsynced(event_log.note, "learner", data, ACTOR, now, batch=pool.batch)
