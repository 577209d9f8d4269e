"""The supervisor: keeps the right number of workers alive on this host.

One per host and store. It holds no state that another process needs: workers continue without it,
and the next supervisor finds them in the store. Each tick is a list of steps. Other rooms add parts
with a `tick` of their own, see `app.make_supervisor`.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from hypervisor.core.errors import STORE_LOST, StoreError, StoreFull
from hypervisor.queue.rescue import sweep
from hypervisor.queue.sql import event_log, readiness
from hypervisor.queue.sql.settlement import any_submitted
from hypervisor.runs.outputs.room import MIN_FREE_BYTES, no_room_text
from hypervisor.runs.processes.signals import Signals
from hypervisor.runs.rest import Rest
from hypervisor.runs.worker_processes import LiveWorkers

if TYPE_CHECKING:
    from hypervisor.queue.context import Context
    from hypervisor.resources.governor import Decision
    from hypervisor.runs.processes.fork_server import ForkServer
    from hypervisor.runs.staffing import ReadyByPool, Staffing

SWEEP_MS = 1000
STATUS_MS = 1000  # how often the load is published; decisions are published at once
FAR_AHEAD = 24 * 3600 * 1000
TICK, WAITING_TICK, FULL_TICK = 0.25, 0.05, 1.0  # seconds
STORE_PATIENCE, ASKED_PATIENCE = 300.0, 10.0  # seconds; the second once it should exit
ACTOR = "supervisor"

logger = logging.getLogger("hypervisor.runs")


class Part(Protocol):
    """Periodic work of another room."""

    def tick(self, now: int) -> None: ...
    def last_look(self) -> None:
        """Called before the supervisor exits."""
        ...


class Supervisor:
    def __init__(
        self,
        hv: Context,
        staffing: Staffing,
        parts: Sequence[Part] = (),
        *,
        idle_ms: int | None,
        after_sweep: Callable[[Context], object] = lambda hv: None,
    ) -> None:
        """`idle_ms`: exit after this long with nothing to do; None: never."""
        self.hv, self.staffing, self.parts = hv, staffing, parts
        self.idle_ms, self._after_sweep = idle_ms, after_sweep
        self._swept_at = 0
        self._full_since: int | None = None  # the disk; nothing is started then
        self._failing_since: float | None = None  # the store
        self._busy_at: int | None = None
        self._published: tuple[int, dict[str, Any]] = (0, {})
        self.is_waiting = True  # for work: no worker is running
        self.is_idle = False  # and no task is ready

    # The loop

    def run(
        self,
        fork_server: ForkServer | None = None,
        each_tick: Callable[[str], None] = lambda asked: None,
    ) -> None:
        """Supervise until there is nothing left to do or a signal arrives. Returns at once if there
        is another supervisor.

        `each_tick` is called with what the signals so far ask for: "", "drain" or "stop"."""
        if not self._acquire_lock():
            return
        logger.info("supervising %s", self.hv.store.where)
        signals = Signals()
        signals.wake_for_children()
        self.hv.launcher.adopt(fork_server)
        rest = Rest(self.hv.launcher.watched())
        while self._step(signals.asked, each_tick):
            if self.is_idle:
                rest.wait(signals)
            else:
                rest.end()
                signals.wait(self._pause())
        logger.info("the supervisor is shutting down")

    def _acquire_lock(self) -> bool:
        """Become the supervisor. If the current one is shutting down, a single successor waits."""
        launcher = self.hv.launcher
        if launcher.acquire_lock() is not None:
            return True
        queued = launcher.acquire_next_lock()
        if queued is None:
            return False
        stays = 0
        while (lock := launcher.acquire_lock()) is None and stays < 2:
            stays = 0 if launcher.is_leaving() else stays + 1  # it removes its status and leaves
            time.sleep(WAITING_TICK)
        os.close(queued)
        return lock is not None

    def _step(self, asked: str, each_tick: Callable[[str], None]) -> bool:
        """One tick, even if the store fails. False when it is time to exit."""
        try:
            if not self.tick(self.hv.now(), asked) and self._release(asked):
                return False
            each_tick(asked)
            if self._failing_since is not None:
                self._failing_since = None
                logger.info("the store is available again")
        except STORE_LOST as error:  # another store, or a newer supervisor, may have taken over
            logger.error("%s", error)
            self._release_at_once()
            return False
        except (StoreError, OSError) as error:  # workers continue; try again
            return self._wait_for_store(error, asked)
        return True

    def _wait_for_store(self, error: StoreError | OSError, asked: str) -> bool:
        if isinstance(error, StoreFull) and not asked:
            self._note_full_disk(self.hv.now())
            return True
        if self._failing_since is None:
            self._failing_since = time.monotonic()
            logger.warning("%s", error)
        logger.debug("the tick failed", exc_info=error)
        if time.monotonic() <= self._failing_since + (ASKED_PATIENCE if asked else STORE_PATIENCE):
            return True
        logger.error("the store has been unavailable for too long")
        self._release_at_once()
        return False

    def _pause(self) -> float:
        if self._full_since is not None:
            return FULL_TICK
        return WAITING_TICK if self.is_waiting else TICK

    def _release(self, asked: str) -> bool:
        """Release the lock. False if work was submitted in the meantime."""
        for part in self.parts:
            part.last_look()
        return self.hv.launcher.release(lambda: self.is_needed(self.hv.now()), at_once=bool(asked))

    def _release_at_once(self) -> None:
        self.hv.launcher.release(lambda: True, at_once=True)

    # One tick

    def tick(self, now: int, asked: str = "") -> bool:
        """Do one round of work. False when there is no reason to stay."""
        staffing = self.staffing
        self.is_idle = False
        staffing.begin(now)
        self._check_disk(now)
        self._sweep(now)
        for part in self.parts:
            part.tick(now)
        live = staffing.workers.look(now)
        if asked:
            return self._drain(now, live, asked)
        ready = staffing.ready()
        demands = staffing.demands(now, live, ready)
        decision = staffing.decide(now, live, demands, ready)
        self._report(now, live, decision)
        staffing.stop_attempts(now, live, decision)
        if self._full_since is None:
            staffing.start_and_drain(now, live, demands, decision.target)
        staffing.agents.watch(live.by_pool(), staffing.workers.leaving, ready)
        return self._has_reason_to_stay(now, live, ready)

    def _check_disk(self, now: int) -> None:
        if self.hv.outputs.room() < MIN_FREE_BYTES:
            self._note_full_disk(now)
        elif self._full_since is not None:
            seconds = (now - self._full_since) // 1000
            message = f"no space left on the disk for {seconds} s; there is room again"
            self.hv.store.write_unsynced(
                event_log.note, "trouble", {"message": message}, ACTOR, now
            )
            self._full_since = None  # last: the write fails if the disk is still full

    def _note_full_disk(self, now: int) -> None:
        """Report it in the log and the status, and in the store if it can still be written."""
        message = no_room_text(self.hv.store.where)
        if self._full_since is None:
            self._full_since = now
            logger.warning("%s", message)
            with suppress(StoreError):
                self.hv.store.write_unsynced(
                    event_log.note, "trouble", {"message": message}, ACTOR, now
                )
        self._publish(self._status(now, LiveWorkers((), {}), message, 0))

    def _sweep(self, now: int) -> None:
        """At most once a second, but at once after a worker has ended."""
        if self.staffing.workers.collect_ended() or not 0 <= now - self._swept_at < SWEEP_MS:
            self._swept_at = now
            sweep(self.hv, now)
            self._after_sweep(self.hv)

    def _drain(self, now: int, live: LiveWorkers, asked: str) -> bool:
        """Shutting down: pass the request on to the workers and wait for them."""
        message = f"starting nothing new: the supervisor was asked to {asked}"
        self._publish({**self._status(now, live, message, 0), "asked": asked})
        workers = self.staffing.workers
        for worker in live.workers:
            if asked == "stop" or worker.worker.id not in workers.leaving:
                workers.signal(worker.worker, asked)
        return bool(live.workers or workers.starting)

    def _report(self, now: int, live: LiveWorkers, decision: Decision) -> None:
        if self._full_since is None:
            status = self._status(now, live, decision.sentence, decision.target)
        else:
            status = self._status(now, live, no_room_text(self.hv.store.where), 0)
        self._publish(status)
        if decision.news:
            logger.info("%s", decision.sentence)
            self.hv.store.write_unsynced(event_log.note, "governor", status, ACTOR, now)

    def _status(self, now: int, live: LiveWorkers, message: str, target: int) -> dict[str, Any]:
        """The published status of this host."""
        zone, load = self.staffing.governor.reading.zone, self.staffing.governor.reading.load
        full = {"trouble": no_room_text(self.hv.store.where)}
        fleet = self.staffing.fleet
        return {
            "at": now,
            "zone": zone,
            "cpu": round(load.cpu, 3),
            "own": round(load.own, 3),
            "ram": round(load.ram, 3),
            "message": message,
            "target": target,
            "workers": len(live.workers),
            **({"refused": dict(fleet.refused)} if fleet and fleet.refused else {}),
            **({} if self._full_since is None else full),
        }

    def _publish(self, status: dict[str, Any]) -> None:
        decided = {key: status[key] for key in status if key not in ("at", "cpu", "own", "ram")}
        published_at, published = self._published
        if decided != published or not 0 <= status["at"] - published_at < STATUS_MS:
            self._published = (status["at"], decided)
            self.hv.launcher.publish_status(status)

    # Staying

    def _has_reason_to_stay(self, now: int, live: LiveWorkers, ready: ReadyByPool) -> bool:
        """Whether there is ready or running work, or a task or account becomes ready in a day."""
        agents = self.staffing.agents
        resting = agents.cooldowns_of(ready)
        free = any(agents.cooldown_of(pool) is None for pool in ready)
        is_staffed = bool(live.workers or self.staffing.workers.starting)
        if resting and not (is_staffed or free):
            agents.note_cooldowns(resting)
        self.is_waiting = not (is_staffed or (resting and not free))
        self.is_idle = not (is_staffed or ready)
        if self._busy_at is None or is_staffed or self._has_work(now, ready):
            self._busy_at = now
        return self.idle_ms is None or now - self._busy_at < self.idle_ms

    def _has_work(self, now: int, ready: ReadyByPool) -> bool:
        agents = self.staffing.agents
        free = any(agents.cooldown_of(pool) is None for pool in ready)
        soon = any(limit.until < now + FAR_AHEAD for limit in agents.cooldowns_of(ready))
        read = self.hv.store.read
        return free or soon or read(readiness.any_due, now + FAR_AHEAD) or read(any_submitted)

    def is_needed(self, now: int) -> bool:
        """Whether there is work; checked again just before the supervisor exits."""
        self.staffing.begin(now)
        return self._has_work(now, self.staffing.ready())
