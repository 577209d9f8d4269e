"""The learner: takes a sample of every attempt that ends here, and chooses the number of workers of
a pool under the strategy `adaptive`.

It is part of the supervisor and follows the event log. Its records are stored in the same
transaction as the number of the last event read, so each attempt counts once, even after a crash.
If thousands of attempts end, it samples some of them.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from hypervisor.core.errors import StoreError
from hypervisor.learning import sql
from hypervisor.learning.concurrency import ConcurrencyTracker, EndedRun
from hypervisor.learning.record import Record, Sample, Work, add_to_record, kind_of
from hypervisor.queue.sql import queries

if TYPE_CHECKING:
    from hypervisor.learning.policy import Choice
    from hypervisor.queue.context import Context
    from hypervisor.queue.event import Event
    from hypervisor.queue.history import EndedAttempt

PAUSE_MS = 300
SOON_MS = 100  # while a pool uses its choice
PAGE = 500
WARM_UP = 1_000  # events before the new ones, to see which attempts were running
MAX_SAMPLES = 100  # per page
BEHIND = 5 * PAGE  # more events than this are skipped, …
REST_MS = 2_000  # … followed by this pause
FORGETFUL = 5_000  # events without a sample that may have to be read again after a crash


class Learner:
    def __init__(self, hv: Context, cores: int = 0) -> None:
        self._hv, self._cores = hv, cores
        self._tracker = ConcurrencyTracker()
        self._records: dict[str, Record] = {}
        self._seen = self._kept = 0
        self._is_ready = self._is_asked = False
        self._look_at: int | None = None
        self._full = 0  # full pages in a row
        self._work: dict[str, Work | None] = {}  # by batch
        self._chosen: dict[tuple[str, int, int, int], Choice] = {}

    # Learning

    def tick(self, now: int) -> None:
        """Read the events since the last tick; one small query if there are none."""
        if self._look_at is not None and 0 <= self._look_at - now <= REST_MS:
            return
        self._look_at = now + (SOON_MS if self._is_asked else PAUSE_MS)
        self._is_asked = False
        if not self._is_ready:
            self._get_ready()
        events = queries.events(self._hv.store, self._seen, PAGE)
        if not events:
            return
        self._take_in(events)
        self._full = self._full + 1 if len(events) == PAGE else 0
        if self._full > 3:
            self._catch_up(now)

    def last_look(self) -> None:
        """Read the latest events before the supervisor exits."""
        with suppress(StoreError):
            for _ in range(4):
                self._look_at = None
                self.tick(self._hv.now())

    def _get_ready(self) -> None:
        """Continue where the last learner stopped, knowing which attempts were running then."""
        host = self._hv.probe.host()
        self._records = sql.records(self._hv, host)
        kept = sql.seen_up_to(self._hv, host)
        self._seen = self._kept = queries.end_of_log(self._hv.store) if kept is None else kept
        self._warm_up()
        self._is_ready = True

    def _warm_up(self) -> None:
        self._tracker = ConcurrencyTracker()
        number = max(self._seen - WARM_UP, 0)
        while number < self._seen:
            events = [
                e for e in queries.events(self._hv.store, number, PAGE) if e.seq <= self._seen
            ]
            if not events:
                break
            self._tracker.follow(events)
            number = events[-1].seq

    def _catch_up(self, now: int) -> None:
        self._full = 0
        end = queries.end_of_log(self._hv.store)
        if end - self._seen > BEHIND:
            self._seen = max(end - PAGE, self._seen)
            self._warm_up()
            self._look_at = now + REST_MS

    def _take_in(self, events: list[Event]) -> None:
        ran = self._tracker.follow(events)
        self._seen = events[-1].seq
        sampled = ran[:: -(-len(ran) // MAX_SAMPLES)] if ran else []
        changed = self._learn({(run.task, run.attempt): run for run in sampled})
        if not changed and self._seen - self._kept < FORGETFUL:
            return
        host = self._hv.probe.host()
        records = {kind: self._records[kind] for kind in changed}
        self._hv.store.write_unsynced(sql.save, host, self._seen, records)
        self._kept = self._seen
        self._chosen.clear()

    def _learn(self, ran: dict[tuple[str, int], EndedRun]) -> set[str]:
        """Add samples to the records. Returns the kinds that have changed."""
        attempts = {(attempt.task, attempt.number): attempt for attempt in self._ended(ran)}
        changed = set()
        for key, run in ran.items():
            ended = attempts.get(key)
            work = self._work_of(run.batch) if ended else None
            if ended is None or work is None:
                continue
            kind = kind_of(ended.type, work, ended.agent)
            record = self._records.get(kind) or Record(ended.type, ended.agent, skill=work.skill)
            self._records[kind] = add_to_record(record, _sample(run, ended), self._cores)
            changed.add(kind)
        return changed

    def _ended(self, ran: dict[tuple[str, int], EndedRun]) -> list[EndedAttempt]:
        host = self._hv.probe.host()
        attempts = self._hv.store.read(sql.ended, list(ran)) if ran else []
        return [attempt for attempt in attempts if attempt.host == host]

    def _work_of(self, batch: str) -> Work | None:
        """None for a batch without a run spec."""
        if batch not in self._work:
            spec = self._hv.store.read(queries.batch, batch).spec
            self._work[batch] = Work.of_batch(spec) if isinstance(spec, dict) else None
        return self._work[batch]

    # Choosing

    def choice(self, kind: str, task_type: str, limit: int, first: int, now: int) -> Choice:
        """How many workers a kind of work should have, at most `limit`; it has `now`."""
        from hypervisor.learning.policy import choose  # most hosts never run `adaptive`
        from hypervisor.learning.posterior import claim_from, posterior

        self._is_asked = True
        key = kind, limit, first, now
        if key not in self._chosen:
            record = self._records.get(kind) or Record(task_type)
            claim = claim_from(sql.prior_of(self._hv, task_type))
            estimate = posterior(record.evidence, claim)
            self._chosen[key] = choose(estimate, limit, first, now)
        return self._chosen[key]


def _sample(ran: EndedRun, ended: EndedAttempt) -> Sample:
    return Sample(
        round(ran.took / 1000, 4),
        round(ran.at_once, 2),
        ended.outcome,
        None if ended.cpu_ms is None else ended.cpu_ms / 1000,
        ended.peak_kb,
        round(max(ran.began - ended.created_at, 0) / 1000, 3),
        ended.tokens,
        ended.cost_micros,
        ended.limited,
        ran.at_first,
    )
