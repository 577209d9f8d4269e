"""From a finished attempt to an entry of the merge queue: collects its commits, in its lane."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from hypervisor.core.errors import HypervisorError, StoreError
from hypervisor.git import sql
from hypervisor.git.clean_text import clean_text
from hypervisor.git.collect import Collected, ConflictsLeft, collect
from hypervisor.git.collect_saved import collect_saved
from hypervisor.git.destination import lane_tip
from hypervisor.git.elsewhere import import_work, is_elsewhere, send_work
from hypervisor.git.exchange import ended_ref
from hypervisor.git.scope import problem_of
from hypervisor.git.snapshot import latest
from hypervisor.git.workplace import Workplace, open_workplace
from hypervisor.git.workspace import open_existing
from hypervisor.queue.sql import event_log, merging, queries
from hypervisor.runs.processes import tree
from hypervisor.runs.spec import spec_from

if TYPE_CHECKING:
    from hypervisor.git.landing import Destination
    from hypervisor.queue.context import Context
    from hypervisor.queue.sql.merging import Submission
    from hypervisor.queue.task import Task
    from hypervisor.runs.spec import RunSpec
    from hypervisor.store.database import Session

ACTOR = "merger"
GRACE = 2.0  # seconds for what a dead worker left running
MAX_COLLECTED = 16  # attempts before the lanes are looked at again

logger = logging.getLogger("hypervisor.git")


class Intake:
    def __init__(self, hv: Context) -> None:
        self._hv, self._host = hv, hv.probe.host()
        self._workplaces: dict[str, Workplace] = {}

    def tick(self, now: int) -> None:
        """Queue attempts that have been completed since the last time."""
        self._workplaces.clear()  # a batch may be declared again
        known = {(row.task, row.attempt) for row in self._hv.store.read(sql.queued)}
        collected = 0
        for submission in self._hv.store.read(merging.submitted):
            if (submission.task, submission.attempt) not in known:
                collected += self._collect(submission, now)
            if collected == MAX_COLLECTED:
                break

    def _collect(self, submission: Submission, now: int) -> bool:
        """False if it has to wait, or is another host's."""
        store, (task, _, attempt, _) = self._hv.store, submission
        row = store.read(sql.workspace, task)
        try:
            if not self._is_ours(row, submission, now):
                return False  # the merger of another host sees to it
            row = row if row is not None and row.host == self._host else None
            is_open = row is not None and row.attempt == attempt and not row.closed
            if row is not None and is_open and not self._end_leftovers(row):
                return False
            self._enter(submission, row, now)
        except StoreError:
            raise
        except OSError as error:  # of this host: tried again
            logger.warning("%s waits: %s", task, error)
            return False
        except ConflictsLeft as error:
            reason = clean_text(str(error))
            store.write(sql.conflicts_left, submission, reason, ACTOR, now=now)
        except (HypervisorError, ValueError) as error:
            reason = clean_text(str(error))
            store.write(merging.to_review, task, attempt, reason, ACTOR, now=now)
        return True

    def _is_ours(self, row: sql.WorkspaceRow | None, submission: Submission, now: int) -> bool:
        """The host of its workspace collects an attempt. If that is gone, and has sent the work
        before, the host that has the repository does."""
        git = self._spec_of(submission.batch).git
        if row is not None and row.host == self._host:
            return True
        if not git.exchange:
            return row is None
        if git.host != self._host:
            return False
        if row is not None and submission.batch not in self._stranded(now):
            return False
        return self._was_sent(submission)

    def _stranded(self, now: int) -> list[str]:
        return self._hv.store.read(sql.stranded, self._host, now)

    def _was_sent(self, submission: Submission) -> bool:
        place, (task, _, attempt, _) = self._workplace(submission.batch), submission
        ref = ended_ref(task, attempt)
        if not place.hub.refs(ref):
            import_work(place.hub, place.spec.git, task, attempt)
        return bool(place.hub.refs(ref))

    def _spec_of(self, batch: str) -> RunSpec:
        return spec_from(self._hv.store.read(queries.batch, batch).spec)

    def _end_leftovers(self, row: sql.WorkspaceRow) -> bool:
        """Whether nobody works there any more. The worker of the attempt says so when it has saved
        everything; if it died before that, we end what it left, and save."""
        holder = self._hv.store.read(sql.holder, row.task, row.attempt)
        if holder is not None:
            pid, start, boot = holder
            if boot == self._hv.probe.boot() and self._hv.probe.process_start(pid) == start:
                return False
        tree.end_leftovers({f"{row.task}.{row.attempt}"}, None, None, GRACE)
        self._hv.store.write(sql.close_workspace, row.task, row.attempt)
        return True

    def _enter(self, submission: Submission, row: sql.WorkspaceRow | None, now: int) -> None:
        task = self._hv.store.read(queries.task, submission.task)
        place = self._workplace(submission.batch)
        destination = place.destination(self._hv, task.id)
        collected = self._work_of(task, submission.attempt, row, place, destination, now)
        if is_elsewhere(place.spec, self._host):
            send_work(place.hub, place.spec.git, task.id, submission.attempt)
        # Entered before: a person has approved it, or asked for it to land.
        is_new = self._hv.store.read(sql.entry, task.id, submission.attempt) is None
        problem = problem_of(task, collected) if is_new else ""
        if collected.no_change and not problem:
            data = {"commit": "", "message": "it changed nothing"}
            self._hv.store.write(merging.merged, task.id, submission.attempt, data, ACTOR, now=now)
            return
        merger = place.spec.git.host or self._host
        self._queue(submission, destination, collected, problem, now, merger=merger)

    def _work_of(
        self,
        task: Task,
        attempt: int,
        row: sql.WorkspaceRow | None,
        place: Workplace,
        destination: Destination,
        now: int,
    ) -> Collected:
        before = self._hv.store.read(sql.last_entry, task.id, attempt + 1)
        known = [tip for tip in (lane_tip(destination), before.tip if before else "") if tip]
        workspace = open_existing(row.folder) if row and row.attempt == attempt else None
        if workspace is None:
            if place.spec.git.host == self._host and not latest(place.hub, task.id, attempt):
                import_work(place.hub, place.spec.git, task.id, attempt)
            return collect_saved(place.hub, task, attempt, (place.base, *known))
        return collect(workspace, task.id, attempt, task.title, {}, now=now, known=known)

    def _workplace(self, batch: str) -> Workplace:
        if batch not in self._workplaces:
            self._workplaces[batch] = open_workplace(self._hv, batch)
        return self._workplaces[batch]

    def _queue(
        self,
        submission: Submission,
        destination: Destination,
        collected: Collected,
        problem: str,
        now: int,
        *,
        merger: str,
    ) -> None:
        """Put the commits into their lane; with a problem, a person has to approve them first.
        `merger`: the host of the lane."""
        where = (destination.lane, destination.repository, merger, destination.mode)

        def add(session: Session) -> None:
            task, _, attempt, _ = submission
            if not merging.lock_submission(session, task, attempt):
                return  # another host, which took this one for dead, was faster
            if (known := sql.entry(session, task, attempt)) and known.state == "queued":
                return
            sql.add_lane(session, *where, target=destination.target)
            sql.add_entry(session, submission, destination.lane, collected.head, collected.base)
            if collected.notes:
                details = {"message": clean_text("; ".join(collected.notes))}
                about = {"task": submission.task, "batch": submission.batch}
                event_log.note(session, "collected", details, ACTOR, now, **about)
            if problem:
                sql.hold_entry(session, submission, problem, ACTOR, now=now)

        self._hv.store.write(add)
