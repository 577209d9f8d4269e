"""Works through one merge lane: takes it, runs its merge queue, writes down what that decides."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hypervisor.core.errors import HypervisorError, StoreError
from hypervisor.git import sql
from hypervisor.git.bench import Benches
from hypervisor.git.clean_text import clean_text
from hypervisor.git.conflict import conflict_text
from hypervisor.git.decisions import (
    BaseFailed,
    Decision,
    Entry,
    EntryConflicted,
    EntryFailed,
    EntryLanded,
    FlakeFound,
    LandingRefused,
    NotVerified,
    TargetUnreachable,
    Verifying,
)
from hypervisor.git.elsewhere import import_work, publish_tip
from hypervisor.git.intake import ACTOR
from hypervisor.git.merge_queue import Lane, MergeQueue
from hypervisor.git.trial import MAX_WIDTH
from hypervisor.git.uncommitted import why_not_yet
from hypervisor.git.verify import Verifier
from hypervisor.git.verify_environment import verify_environment
from hypervisor.git.workplace import Workplace, open_workplace
from hypervisor.queue.sql import event_log, queries

if TYPE_CHECKING:
    from hypervisor.git.parallel import Parallel
    from hypervisor.queue.context import Context

PAUSE_MS = 5_000  # before a lane that had to pause is tried again
FIRST_RECHECK_MS, LAST_RECHECK_MS = 60_000, 30 * 60_000  # of a target that fails verification


class LaneWorker:
    """Kept between rounds: it remembers when a failing target is verified again."""

    def __init__(self, hv: Context, lane: str, parallel: Parallel) -> None:
        self._hv, self._lane, self._parallel = hv, lane, parallel
        self._host = hv.probe.host()
        self._recheck_at, self._recheck_after = 0, FIRST_RECHECK_MS
        self._unverified: set[str] = set()  # batches for which that has been noted

    def work(self, entries: Sequence[sql.EntryRow]) -> None:
        """Batches may verify differently, so each has its turn."""
        for batch in dict.fromkeys(entry.batch for entry in entries):
            own = [entry for entry in entries if entry.batch == batch]
            if not self._work_on(batch, own):
                return

    def _work_on(self, batch: str, entries: list[sql.EntryRow]) -> bool:
        """False if the lane is not ours, or paused."""
        actor = f"{ACTOR}@{self._host}"
        held = self._hv.store.write(sql.take_lane, self._lane, actor, self._host, self._hv.now())
        if held is None:
            return False
        try:
            return self._merge(held, open_workplace(self._hv, batch), entries)
        except StoreError:
            raise
        except (HypervisorError, OSError, ValueError) as error:  # the queue tries again
            self._pause(held, batch, clean_text(str(error)), PAUSE_MS)
            return False

    def _merge(self, held: sql.Held, place: Workplace, entries: list[sql.EntryRow]) -> bool:
        rows = {f"{row.task}.{row.attempt}": row for row in entries}
        for row in entries:
            if place.hub.git.commit_of(row.head) is None:  # another host did the work
                import_work(place.hub, place.spec.git, row.task, row.attempt)
        lane = self._make_lane(held, place, rows)
        if reason := why_not_yet(place, lane.destination):
            return self._pause(held, place.batch, f"{reason}, then this continues", PAUSE_MS)
        queue, moves = MergeQueue(lane), True
        for decision in queue.run([self._entry(name, row, place) for name, row in rows.items()]):
            moves = self._apply(held, decision, rows, place) and moves
        self._show(held, "")
        if moves:
            self._recheck_at, self._recheck_after = 0, FIRST_RECHECK_MS
            self._hv.store.write(sql.resume_lane, held)
        return moves

    def _make_lane(self, held: sql.Held, place: Workplace, rows: dict[str, sql.EntryRow]) -> Lane:
        folder, git = os.path.join(self._hv.places.data, "git"), place.hub.git
        verifier = Verifier(
            git,
            Benches(git, os.path.join(folder, "benches"), held.lane, MAX_WIDTH),
            place.spec.git.verify,
            outputs=os.path.join(folder, "verify"),
            cache=sql.StoredVerdicts(self._hv.store),
            environment=verify_environment(self._hv, place.spec, place.batch),
            while_running=lambda: self._parallel.running(self._lane),
        )
        return Lane(
            place.destination(self._hv, next(iter(rows.values())).task),
            verifier,
            place.base,
            width=lambda: self._parallel.width(self._lane),
            gate=_Ledger(self._hv, held, rows),
            recheck_base=self._hv.now() >= self._recheck_at,
        )

    def _entry(self, name: str, row: sql.EntryRow, place: Workplace) -> Entry:
        task = self._hv.store.read(queries.task, row.task)
        trailers = f"Hypervisor-Task: {row.task}\nHypervisor-Attempt: {row.attempt}"
        message = f"{task.title}\n\n{trailers}"
        return Entry(name, row.head, row.base, message, place.spec.git.strategy)

    def _apply(
        self,
        held: sql.Held,
        decision: Decision,
        rows: dict[str, sql.EntryRow],
        place: Workplace,
    ) -> bool:
        """Write a decision down. False if the lane has to pause."""
        store, now, batch = self._hv.store, self._hv.now(), place.batch
        match decision:
            case Verifying(entries, _):
                titles = [rows[entry.id].task for entry in entries]
                self._show(held, f"verifying {' '.join(titles)}")
            case EntryLanded(entry, commit, where, verified, already):
                data = {"commit": commit, "target": where, "verified": verified}
                data |= {"already": True} if already else {}
                store.write(sql.landed, held, rows[entry.id], data, now=now)
            case EntryConflicted(entry, tip, paths, message):
                reason = conflict_text(place.hub, rows[entry.id], tip, paths, message)
                publish_tip(place.hub, place.spec.git, tip)
                store.write(sql.returned, held, rows[entry.id], reason, tip, now=now)
            case EntryFailed(entry, _, tip, _, _, reason):
                publish_tip(place.hub, place.spec.git, tip)
                store.write(sql.returned, held, rows[entry.id], clean_text(reason), tip, now=now)
            case BaseFailed(_, _, reason):
                self._wait_for_base(now)
                return self._pause(held, batch, clean_text(reason), PAUSE_MS)
            case LandingRefused(reason) | TargetUnreachable(reason):
                return self._pause(held, batch, clean_text(reason), PAUSE_MS)
            case FlakeFound(commit, _, _, reason):
                self._note("flake", {"commit": commit, "message": clean_text(reason)}, batch)
            case NotVerified(reason):
                self._note_unverified(held, reason, batch)
        return True

    def _wait_for_base(self, now: int) -> None:
        """A target that fails is looked at often, in case it moves, but verified again ever more
        rarely."""
        if now >= self._recheck_at:
            self._recheck_at = now + self._recheck_after
            self._recheck_after = min(2 * self._recheck_after, LAST_RECHECK_MS)

    def _pause(self, held: sql.Held, batch: str, reason: str, wait_ms: int) -> bool:
        """Nothing is lost: the entries stay queued, and the lane is tried again."""
        if self._hv.store.write(sql.pause_lane, held, reason, self._hv.now() + wait_ms):
            self._note("merge_paused", {"lane": held.lane, "message": reason}, batch)
        return False

    def _show(self, held: sql.Held, doing: str) -> None:
        self._hv.store.write(sql.show_doing, held, doing)

    def _note_unverified(self, held: sql.Held, reason: str, batch: str) -> None:
        if batch not in self._unverified:
            self._unverified.add(batch)
            self._note("unverified", {"lane": held.lane, "message": reason}, batch)

    def _note(self, kind: str, data: dict[str, object], batch: str) -> None:
        self._hv.store.write(event_log.note, kind, data, ACTOR, self._hv.now(), batch=batch)


class _Ledger:
    """The gate of a lane: see merge_queue.Gate. Entries are named TASK.ATTEMPT."""

    def __init__(self, hv: Context, held: sql.Held, rows: dict[str, sql.EntryRow]) -> None:
        self._hv, self._held, self._rows = hv, held, rows

    def wanted(self, entries: Sequence[str]) -> list[str] | None:
        rows = [self._rows[name] for name in entries]
        tasks = self._hv.store.read(sql.still_wanted, self._held, rows)
        return self._named(tasks, entries)

    def begin(self, entries: Sequence[str]) -> list[str] | None:
        rows = [self._rows[name] for name in entries]
        tasks = self._hv.store.write(sql.begin_landing, self._held, rows)
        return self._named(tasks, entries)

    def end(self) -> None:
        self._hv.store.write(sql.end_landing, self._held, list(self._rows.values()))

    def _named(self, tasks: list[str] | None, entries: Sequence[str]) -> list[str] | None:
        if tasks is None:
            return None
        return [name for name in entries if self._rows[name].task in tasks]
