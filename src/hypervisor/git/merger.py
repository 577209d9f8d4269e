"""The merger: puts finished attempts into their merge lanes, and works through the lanes.

A process of its own, one per host and store; it stays as long as something is merging. Each lane
has a thread, so that one does not wait for another. It keeps nothing that is not in the ledger or
in the hub, so it may be killed at any point and started again.
"""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import groupby
from typing import TYPE_CHECKING

from hypervisor.core.errors import StoreError
from hypervisor.git import sql
from hypervisor.git.intake import Intake
from hypervisor.git.lane_worker import LaneWorker
from hypervisor.git.parallel import Parallel
from hypervisor.git.sending import Unsent, send_unsent
from hypervisor.git.tidy import save_left, tidy
from hypervisor.queue.sql import merging

if TYPE_CHECKING:
    from hypervisor.queue.context import Context

LOOK = 0.25  # seconds between looks at whether anything was submitted
ROUND_MS = 5_000  # a round at least this often: what had to wait is tried again
LINGER = 2.0  # seconds that it stays with nothing to do
MAX_LANES = 8  # at a time
SENDING, SEND_MS = "sending", 10_000  # ms between looks at what other hosts need

logger = logging.getLogger("hypervisor.git")


class Merger:
    def __init__(self, hv: Context) -> None:
        self._hv, self._host = hv, hv.probe.host()
        self._intake, self._parallel = Intake(hv), Parallel(hv)
        self._workers: dict[str, LaneWorker] = {}
        self._busy: dict[str, Future[None]] = {}
        self._failed: dict[str, int] = {}  # when to try again after an error nobody expected
        self._wake = threading.Event()
        self._unsent, self._send_at = Unsent(hv.places.data), 0

    def run(self) -> None:
        """Merge until nothing is left to merge; save what killed attempts left, and tidy up."""
        save_left(self._hv, self._hv.now())
        worked_at = time.monotonic()
        with ThreadPoolExecutor(MAX_LANES, thread_name_prefix="lane") as pool:
            while True:
                if self._round(pool):
                    worked_at = time.monotonic()
                elif time.monotonic() - worked_at >= LINGER:
                    break
                else:
                    time.sleep(LOOK)
        tidy(self._hv)

    def _round(self, pool: ThreadPoolExecutor) -> bool:
        """Work, and wait until there may be more. False: there was nothing to do, or the store
        does not answer."""
        try:
            now = self._hv.now()
            if not self.tick(now, pool):
                return False
            self._wait(now)
        except StoreError as error:
            logger.warning("%s", error)
            return False
        except Exception:  # the lanes continue, so this must, too
            logger.exception("the merger had an error")
            return False
        return True

    def tick(self, now: int, pool: ThreadPoolExecutor) -> bool:
        """One round. False if nothing is to be merged here."""
        self._wake.clear()
        self._collect_ended(now)
        self._intake.tick(now)
        if now >= self._send_at and SENDING not in self._busy and self._unsent.attempts():
            self._send_at = now + SEND_MS
            self._run(SENDING, pool.submit(send_unsent, self._hv))
        due = {lane.id for lane in self._hv.store.read(sql.merge_lanes) if self._is_due(lane, now)}
        for lane, group in groupby(self._hv.store.read(sql.queued), lambda entry: entry.lane):
            entries = list(group)
            if lane in due:
                self._start(lane, entries, pool)
        return bool(self._busy) or self._hv.store.read(sql.any_here, self._host)

    def _is_due(self, lane: sql.LaneRow, now: int) -> bool:
        is_ours = lane.host == self._host and lane.id not in self._busy
        return is_ours and max(lane.retry_at, self._failed.get(lane.id, 0)) <= now

    def _start(self, lane: str, entries: list[sql.EntryRow], pool: ThreadPoolExecutor) -> None:
        worker = self._workers.setdefault(lane, LaneWorker(self._hv, lane, self._parallel))
        self._run(lane, pool.submit(worker.work, entries))

    def _run(self, name: str, future: Future[None]) -> None:
        self._busy[name] = future
        future.add_done_callback(lambda _: self._wake.set())

    def _collect_ended(self, now: int) -> None:
        for lane, future in list(self._busy.items()):
            if future.done():
                del self._busy[lane]
                if error := future.exception():
                    logger.error("lane %s: %s", lane, error, exc_info=error)
                    self._failed[lane] = now + ROUND_MS

    def _wait(self, now: int) -> None:
        """Until something is submitted, a lane is due or has ended its work, or a while passed."""
        lanes = self._hv.store.read(sql.merge_lanes)
        times = [lane.retry_at for lane in lanes if lane.host == self._host and lane.retry_at > now]
        until = min([*times, now + ROUND_MS])
        mark = self._hv.store.read(merging.submitted_mark)
        while not self._wake.wait(LOOK):
            if self._hv.now() >= until or self._hv.store.read(merging.submitted_mark) != mark:
                return
