"""The worker: claims tasks of one batch, runs each attempt, settles.

What ended is in the journal at once and in the store a moment later, several
at a time together with the next claim. Short tasks are claimed several at a
time; once one takes long, those claimed with it go back for others to take.
"""

from __future__ import annotations

import errno
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from hypervisor.batches.reduce_input import with_result, write_reduce_input
from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput, RequestError, StoreError, StoreFull, StoreGone
from hypervisor.inputs.items import item_of
from hypervisor.inputs.task_files.write_back import write_back, write_back_all
from hypervisor.queue.attempt import Ended
from hypervisor.queue.lane import ClaimFilter
from hypervisor.queue.lease import ClaimRequest, Lease, Token, Usage, Verdict, parse_token
from hypervisor.queue.result import LARGEST_RESULT, receipts_in, result_in
from hypervisor.queue.retry import back_off
from hypervisor.queue.settle import remember_worker, settle_and_claim
from hypervisor.queue.sql import event_log, queries, steer
from hypervisor.resources.limits import Limits, merged
from hypervisor.runs import sql
from hypervisor.runs.config import limits_from
from hypervisor.runs.patience import answering_at_once, if_possible, patient, patiently
from hypervisor.runs.spec import BATCH, LEAST_ROOM, Pause, RunSpec, Stop, no_room_text, spec_data
from hypervisor.runs.watch import Watch
from hypervisor.store import settings as store_settings

if TYPE_CHECKING:
    from collections.abc import Collection

    from hypervisor.ports import Journal, Outputs, Runner
    from hypervisor.queue.context import Context
    from hypervisor.queue.lease import Worker as Identity
    from hypervisor.queue.task import Json, Task
    from hypervisor.runs.config import Settings

LEASE = 60_000
FLUSH = 0.05  # seconds an ended attempt may wait for company on its way to the store
GLANCE = 0.03  # who lasts so long may be watched by people: a file costs it less than a hundredth
FIRST_LOOK = 0.25
LOOK = 1.0
ROOM_LOOK = 0.1
SHORT_TURN, LONG_TURN = 0.04, 0.1
MOST_CLAIMED = 64
IDLE = 1.0
MOST_TROUBLES = 10
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
SMALLEST_PEAK = 1 << 20


class Worker:
    agent = ""  # the profile that works on the tasks, where it is an agent that does

    def __init__(
        self,
        hv: Context,
        me: Identity,
        batch: str,
        spec: RunSpec,
        runner: Runner,
        journal: Journal,
        outputs: Outputs,
        settings: Settings,
        capabilities: tuple[str, ...] = (),
    ) -> None:
        self.hv, self.me, self.batch, self.spec = patient(hv, runner), me, batch, spec
        self.runner, self.journal, self.outputs = runner, journal, outputs
        self.settings = settings
        self.wanted = ClaimFilter(batch=batch, capabilities=capabilities)
        self.leases: deque[Lease] = deque()
        self.verdicts: list[Verdict] = []
        self.declared = spec_data(spec)
        self.size = spec.claim or 1
        self.limits: dict[str, Limits] = {}
        self.peaks: dict[str, tuple[float, int]] = {}
        self.claimed: float | None = None
        self.flushed = time.monotonic()
        self.idle_since: float | None = None
        self.troubles = 0
        self.room_seen = 0.0

    def run(self) -> None:
        """Work until the batch has nothing more to claim, or a signal asks for an end."""
        now = self.hv.now()
        self.hv.store.write_unsynced(sql.register, self.me, self.batch, self.agent, now)
        remember_worker(self.hv.store, self.me.id, bool(self.agent))
        self.journal.clear()  # it is there from now on, and before the first claim
        try:
            while self.turn():
                pass
            self._give_back(self.leases, "the worker ends")
            self._settle()
        finally:
            self.runner.close()
        self.outputs.close()
        self.hv.store.write_unsynced(sql.retire, self.me.id, self.hv.now())
        self.journal.remove()

    def turn(self) -> bool:
        """One attempt, or a look for more. False when it is time to go."""
        if self.runner.asked:
            return False
        if not self._has_room():
            return True
        if self.leases:
            self._carry_out(self.leases.popleft())
            if time.monotonic() - self.flushed > FLUSH:
                self._keep_up()
            return True
        if not self._is_as_declared():
            return False  # it is to be run otherwise now: by a new worker
        if self._take():
            self.idle_since = None
            return True
        return self._rest()

    def _has_room(self) -> bool:
        """Whether what an attempt prints can be kept; if not, wait for room, and hold nothing."""
        if time.monotonic() < self.room_seen + ROOM_LOOK:
            return True
        if self.outputs.room() >= LEAST_ROOM:
            self.room_seen = time.monotonic()
            return True
        self._give_back(self.leases, no_room_text(self.hv.store.where))
        self._settle()
        self.runner.pause(1.0)
        return False

    # Claiming and settling

    def _take(self) -> bool:
        if self.spec.claim is None and self.idle_since is None and self.claimed is not None:
            self.size = _next_size(self.size, time.monotonic() - self.claimed)
        request = ClaimRequest(self.me, self.size, LEASE, self.wanted)
        self.leases = deque(self._exchange(request))
        self.claimed = time.monotonic()
        return bool(self.leases)

    def _keep_up(self) -> None:
        """Tell what has ended and, in the same breath, take what keeps us busy until the next
        time: about as much again. Without this, each would be a transaction of its own."""
        pace = len(self.verdicts)
        more = min(pace + pace // 2, MOST_CLAIMED) - len(self.leases)
        if self.spec.claim is not None or more <= 0 or self.runner.asked:
            return self._settle()
        if not self._is_as_declared():
            return self._settle()
        self.leases += self._exchange(ClaimRequest(self.me, more, LEASE, self.wanted))
        self.size, self.claimed = max(pace, 1), time.monotonic()
        return None

    def _is_as_declared(self) -> bool:
        return bool(self.hv.store.read(queries.batch, self.batch).spec == self.declared)

    def _settle(self) -> None:
        if self.verdicts:
            self._exchange(None)

    def _settle_if_possible(self) -> None:
        """Beside a running attempt: no trouble with the store is worth ending it for."""
        if self.verdicts:
            with suppress(StoreError):
                self._exchange(None)

    def _exchange(self, request: ClaimRequest | None) -> list[Lease]:
        """Tell the store what ended and take what is next."""
        now = self.hv.now()
        _, leases = patiently(self.hv, settle_and_claim, self.verdicts, request, now)
        return self._conclude(leases)

    def _conclude(self, leases: list[Lease]) -> list[Lease]:
        """The store has it all; what follows from it."""
        failed = next((v for v in self.verdicts if v.event == "fail"), None)
        if self.verdicts:
            if self.spec.write_back != "none":
                write_back_all(self.hv, [each.token.task for each in self.verdicts], self.spec)
            self.journal.clear()
            self.verdicts = []
        self.flushed = time.monotonic()
        if failed is not None and self.spec.fail_fast:
            self._fail_fast(failed)
        return leases

    def _give_back(self, leases: deque[Lease], why: str) -> None:
        """Put back what was not begun, unless somebody has called it off meanwhile."""
        stops = {(stop.task, stop.attempt): stop for stop in self._stops(leases)}
        for lease in leases:
            token = parse_token(lease.token)
            stop = stops.get((token.task, token.attempt))
            if stop is None or stop.next == "release":
                self.verdicts.append(Verdict(token, "release", reason=why))
            elif stop.next == "fail":
                self.verdicts.append(Verdict(token, "fail", reason=stop.reason))
            else:
                with suppress(StoreError):  # then it stays claimed, and is not run either
                    self._cancel(stop)
        leases.clear()

    def _stops(self, leases: Collection[Lease]) -> list[Stop]:
        with suppress(StoreError):
            return self.hv.store.read(sql.stops, [lease.task.id for lease in leases])
        return []

    def _rest(self) -> bool:
        """Nothing to claim: look again for a while, then leave it to the supervisor."""
        now = time.monotonic()
        if self.idle_since is None:
            self.idle_since, self.size = now, self.spec.claim or 1
        self.runner.pause(min(0.02 + (now - self.idle_since) / 4, 0.25))
        return now - self.idle_since < IDLE

    def _fail_fast(self, failed: Verdict) -> None:
        from hypervisor.batches.pipeline import batches_of

        why = f"fail-fast: {failed.token.task} failed ({failed.reason})"
        for batch in batches_of(self.hv, self.batch):
            self.hv.store.write(
                sql.pause, Pause(BATCH, batch, why[:500], self.me.name, 0), self.hv.now()
            )
        self._give_back(self.leases, why[:500])

    # One attempt

    def _carry_out(self, lease: Lease) -> None:
        task = lease.task
        try:
            self.hv.store.check_present()
            limits = self._limits_of(task)
            output = self.outputs.prepare(task.id, task.attempts)
            self.journal.starting(lease.token)
            if self.spec.write_back == "status":
                write_back(self.hv, task.id, self.spec)
            lease = write_reduce_input(self.hv, lease)
            self._start(lease, output)
        except InvalidInput as error:  # an item that no command can be made for, or bad limits
            return self._end(lease, Ended(None, None, 0.0, 0, error=str(error)), 0)
        except StoreGone:
            raise
        except (OSError, StoreError) as error:  # the host's trouble, not the task's
            self._host_trouble(lease, error)
            return None
        self.troubles = 0
        started = time.monotonic()
        ended = self.runner.wait(GLANCE)
        if ended is None:
            self.outputs.takes_long(task.id, task.attempts)
            ended = self.runner.wait(FIRST_LOOK - GLANCE)
        if ended is not None:
            self._clear(lease)
            return self._end(lease, ended, 0)
        return self._stay_with(lease, limits, started)

    def _start(self, lease: Lease, output: str) -> None:
        item = with_result(self.hv, lease.task, item_of(lease.task), self.spec)
        self.runner.start(item, lease.token, output)

    def _limits_of(self, task: Task) -> Limits:
        if isinstance(task.data, dict) and "limits" in task.data:
            return limits_of(task, self.spec, self.settings)
        if task.type not in self.limits:
            self.limits[task.type] = limits_of(task, self.spec, self.settings)
        return self.limits[task.type]

    def _stay_with(self, lease: Lease, limits: Limits, started: float) -> None:
        """The attempt takes its time: let go of what else was claimed, and watch it."""
        if pid := self.runner.leader:
            self.journal.leader(pid, self.hv.probe.process_start(pid) or 0)
        self._give_back(self.leases, "the worker is busy with another task")
        self.size = self.spec.claim or 1
        self.runner.settle_in()
        watch = self._watch(lease, limits, started)
        ended, stop = None, None
        with answering_at_once(self.hv):
            while ended is None and stop is None:
                self._settle_if_possible()
                stop = watch.look(time.monotonic())
                ended = None if stop else self.runner.wait(LOOK)
        if stop is not None:
            return self._stop(lease, stop, watch.peak)
        assert ended is not None
        self._clear(lease)
        return self._end(lease, ended, watch.peak)

    def _watch(self, lease: Lease, limits: Limits, started: float) -> Watch:
        return Watch(
            self.hv,
            lease,
            self.runner,
            self.outputs,
            limits,
            self.settings.dry_run,
            self.me,
            LEASE,
            started,
        )

    def _stop(self, lease: Lease, stop: Stop, peak: int) -> None:
        ended = self.runner.stop(self.settings.grace)
        if stop.next == "lost":
            return
        if stop.next == "cancel":
            return self._cancel(stop)
        usage = self._usage(lease, ended, peak)
        token = parse_token(lease.token)
        if stop.next == "release":
            self._decide(Verdict(token, "release", reason=stop.reason, usage=usage))
        elif stop.next == "fail":
            self._decide(Verdict(token, "fail", reason=stop.reason, usage=usage))
        else:
            self._decide(self._failure(lease, stop.reason, usage))

    def _cancel(self, stop: Stop) -> None:
        with suppress(RequestError):  # it has ended otherwise meanwhile
            self.hv.store.write(steer.cancel, stop.task, stop.reason, stop.actor, self.hv.now())
            self.hv.store.write_unsynced(sql.forget_stop, stop.task)
        if self.spec.write_back != "none":
            write_back(self.hv, stop.task, self.spec)

    def _clear(self, lease: Lease) -> None:
        if left := self.runner.clear(self.settings.grace):
            with if_possible(self.hv):  # how the attempt ended is still to be written down
                self.hv.store.write_unsynced(
                    event_log.note,
                    "leftovers",
                    {"processes": left, "said": f"{left} left running were stopped"},
                    self.me.name,
                    self.hv.now(),
                    task=lease.task.id,
                    batch=self.batch,
                )

    def _end(self, lease: Lease, ended: Ended, peak: int) -> None:
        if self.runner.hopeless:
            return self._give_up(lease, self.runner.hopeless)
        usage = self._usage(lease, ended, peak)
        if not ended.ok:
            self._decide(self._failure(lease, ended.reason() or "failed", usage))
            return
        try:
            result = self._printed(lease) if self.spec.result == "json" else ended.result
            if result is not None:
                validate.json_value("the result", result)
        except (ValueError, InvalidInput) as error:
            self._decide(self._failure(lease, f"no result: {error}", usage))
            return
        evidence = () if result is None else receipts_in(result)
        self._decide(Verdict(_token(lease), "complete", result, None, None, None, usage, evidence))

    def _printed(self, lease: Lease) -> Json:
        """What a command printed last, if that is JSON."""
        task = lease.task
        size = self.outputs.size(task.id, task.attempts) or 0
        tail = self.outputs.read(task.id, task.attempts, max(size - LARGEST_RESULT, 0), size)
        return result_in(tail)

    def _give_up(self, lease: Lease, why: str) -> None:
        """Every other item would fail for the same reason: leave them as they are."""
        self.leases.appendleft(lease)
        self._give_back(self.leases, why[:500])
        self._settle()
        self.hv.store.write(
            sql.pause, Pause(BATCH, self.batch, why[:500], self.me.name, 0), self.hv.now()
        )

    def _decide(self, verdict: Verdict) -> None:
        self.journal.ended(verdict)
        self.verdicts.append(verdict)
        if verdict.event == "fail" and self.spec.fail_fast:
            self._settle()  # before anything else is started or claimed

    def _failure(self, lease: Lease, reason: str, usage: Usage) -> Verdict:
        task, token = lease.task, _token(lease)
        if task.failures >= task.retries:
            return Verdict(token, "fail", reason=reason, usage=usage)
        at = self.hv.store.now() + back_off(task.failures + 1)
        return Verdict(token, "back_off", reason=reason, retry_at=at, usage=usage)

    def _usage(self, lease: Lease, ended: Ended, sampled: int) -> Usage:
        task = lease.task
        peak = max(ended.peak, sampled)
        size = self.outputs.ended(task.id, task.attempts)
        if size is not None and size > self.settings.keep_each:
            self.outputs.bound(task.id, task.attempts, self.settings.keep_each)
        self._learn(task.type, peak)
        return Usage(ended.exit_code, round(ended.cpu * 1000), peak // 1024 or None, size)

    def _learn(self, kind: str, peak: int) -> None:
        """What a type of task needs at most: up at once, down slowly, told when it matters."""
        estimate, told = self.peaks.get(kind) or (0.0, 0)
        estimate = max(peak, estimate * 0.99, SMALLEST_PEAK)
        if not 0.8 < estimate / (told or 1) < 1.1:
            told = int(estimate)
            with if_possible(self.hv):  # how the attempt ended is still to be written down
                self.hv.store.write(store_settings.set_setting, f"peak {kind}", str(told))
        self.peaks[kind] = (estimate, told)

    def _host_trouble(self, lease: Lease, error: OSError | StoreError) -> None:
        why = f"this host could not start it: {getattr(error, 'strerror', None) or error}"
        self.leases.appendleft(lease)
        self._give_back(self.leases, why)
        self._settle()
        self.hv.store.write_unsynced(
            event_log.note,
            "trouble",
            {"said": why},
            self.me.name,
            self.hv.now(),
            task=lease.task.id,
            batch=self.batch,
        )
        if isinstance(error, StoreFull) or getattr(error, "errno", None) in NO_ROOM:
            self.runner.pause(1.0)
            return  # it will have room again, and needs nobody for that
        self.troubles += 1
        if self.troubles >= MOST_TROUBLES:
            self.hv.store.write(
                sql.pause, Pause(BATCH, self.batch, why, self.me.name, 0), self.hv.now()
            )
        self.runner.pause(1.0)


def limits_of(task: Task, spec: RunSpec, settings: Settings) -> Limits:
    """Task over batch over type over the defaults. A task carries its own in its data."""
    own = task.data.get("limits") if isinstance(task.data, dict) else None
    batch = Limits(spec.time, spec.memory, spec.silence, spec.output)
    per_type = settings.limits_by_type.get(task.type, Limits())
    return merged(limits_from(own or {}), batch, per_type, settings.limits)


def _token(lease: Lease) -> Token:
    """What `parse_token` makes of it; but this one comes from the store itself."""
    return Token(lease.task.id, lease.task.attempts, lease.token.rpartition(".")[2])


def _next_size(size: int, took: float) -> int:
    """Claim about as much as can be done in the blink of an eye."""
    if took < SHORT_TURN:
        return min(size * 2, MOST_CLAIMED)
    return max(size // 2, 1) if took > LONG_TURN else size
